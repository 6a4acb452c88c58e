package evidence

import (
	"path"
	"slices"
	"strings"
	"time"

	"shardlease/internal/experiment"
)

// CrateFile describes the run as an RO-Crate 1.1 by the Process Run Crate profile 0.5, the newest pair that published
// tools read.
const CrateFile = "ro-crate-metadata.json"

type node map[string]any

func ref(id string) node { return node{"@id": id} }

// WriteCrate lists the files written so far with their hashes and one action for each experiment's step, failed ones
// included. It comes before WriteStatement.
func (r *Run) WriteCrate(specs []*experiment.Spec) error {
	list, err := sums(r.Dir, SumsFile, StatementFile, CrateFile)
	if err != nil {
		return err
	}
	var parts, actions, graph []node
	for _, f := range list {
		parts = append(parts, ref(f.Path))
		graph = append(graph, node{"@id": f.Path, "@type": "File", "name": path.Base(f.Path), "sha256": f.SHA256, "encodingFormat": mediaType(f.Path)})
	}
	for _, spec := range specs {
		if a := r.action(spec, list); a != nil {
			actions = append(actions, ref(a["@id"].(string)))
			graph = append(graph, a)
		}
	}
	const profile = "https://w3id.org/ro/wfrun/process/0.5"
	head := []node{
		{"@id": CrateFile, "@type": "CreativeWork", "about": ref("./"), "conformsTo": ref("https://w3id.org/ro/crate/1.1")},
		{
			"@id": "./", "@type": "Dataset", "name": "shardlease reproduction run " + r.Name,
			"description":   "Raw samples, results and verdicts of the shard group-commit experiments at " + string(r.Scale) + " scale.",
			"datePublished": r.Start.Format(time.RFC3339), "license": ref("https://spdx.org/licenses/Apache-2.0"),
			"conformsTo": ref(profile), "hasPart": parts, "mentions": actions,
		},
		{"@id": profile, "@type": "CreativeWork", "name": "Process Run Crate", "version": "0.5"},
		{"@id": "https://spdx.org/licenses/Apache-2.0", "@type": "CreativeWork", "name": "Apache License 2.0"},
		{"@id": "#shardlease", "@type": "SoftwareApplication", "name": "shardlease", "version": r.Commit},
	}
	return r.WriteJSON(CrateFile, node{
		"@context": []any{"https://w3id.org/ro/crate/1.1/context", node{"sha256": "https://schema.org/sha256"}},
		"@graph":   slices.Concat(head, graph),
	})
}

// action is nil for an experiment that was never started.
func (r *Run) action(spec *experiment.Spec, list []Sum) node {
	for _, step := range slices.Backward(r.Steps) {
		if step.Name != spec.Name {
			continue
		}
		results := []node{}
		for _, f := range list {
			if strings.HasPrefix(f.Path, spec.Name+"/") {
				results = append(results, ref(f.Path))
			}
		}
		status := "http://schema.org/CompletedActionStatus"
		if step.RC != 0 {
			status = "http://schema.org/FailedActionStatus"
		}
		a := node{
			"@id": "#" + spec.Name, "@type": "CreateAction", "name": spec.Title, "instrument": ref("#shardlease"),
			"object": ref(ClaimsFile), "result": results, "actionStatus": ref(status),
			"startTime": step.Start.Format(time.RFC3339Nano), "endTime": step.End.Format(time.RFC3339Nano),
		}
		if step.Error != "" {
			a["error"] = step.Error
		}
		return a
	}
	return nil
}

func mediaType(name string) string {
	switch path.Ext(name) {
	case ".json":
		return "application/json"
	case ".csv":
		return "text/csv"
	case ".svg":
		return "image/svg+xml"
	case ".html":
		return "text/html"
	case ".md":
		return "text/markdown"
	}
	return "text/plain"
}
