package evidence

import (
	_ "embed"
)

// Files of a run that hold the claims, with their bands, and the verdicts on them.
const (
	ClaimsFile   = "claims.json"
	VerdictsFile = "verdicts.json"
	GuideFile    = "EVIDENCE.md"
)

//go:embed guide.md
var guide []byte

// WriteGuide puts the instructions for readers who don't trust this program beside the evidence.
func (r *Run) WriteGuide() error { return r.Write(GuideFile, guide) }
