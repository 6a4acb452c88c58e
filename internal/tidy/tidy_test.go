// Package tidy holds the project's style as tests: import arrows, sizes, banned calls, dead links.
package tidy

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "shardlease/"

const (
	maxFileLines     = 400
	maxFunctionLines = 70
)

// source is one Go file of the repository.
type source struct {
	path  string // slash-separated, relative to the repository root
	text  []byte
	fset  *token.FileSet
	file  *ast.File
	tests bool
}

func (s source) dir() string { return path.Dir(s.path) }

func repositoryRoot(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Fatalf("no go.mod above internal/tidy: %v", err)
	}
	return root
}

// walk calls f for each regular file of the project, leaving out what git ignores.
func walk(t *testing.T, f func(rel string, text []byte)) {
	t.Helper()
	root := repositoryRoot(t)
	skip := []string{".git", "node_modules", "testdata", "runs", ".build", "bin"}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if slices.Contains(skip, d.Name()) || strings.HasSuffix(d.Name(), ".partial") {
				return filepath.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		f(filepath.ToSlash(rel), text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	walk(t, func(rel string, text []byte) {
		if !strings.HasSuffix(rel, ".go") {
			return
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, rel, text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, source{path: rel, text: text, fset: fset, file: file, tests: strings.HasSuffix(rel, "_test.go")})
	})
	if len(all) < 10 {
		t.Fatalf("found only %d Go files: the walk is broken", len(all))
	}
	return all
}

// arrows lists, for each part of the tree, which other parts it may import. The longest matching prefix decides. A part
// may always import itself and what lies below it.
var arrows = []struct {
	part string
	may  []string
}{
	{"magefile.go", []string{"experiments"}},
	{"cmd", []string{"internal/campaign", "internal/hybrid", "internal/sysfault", "pkg"}},
	{"experiments", []string{"internal", "pkg"}},
	{"internal/campaign", []string{"pkg"}},
	{"internal/hybrid", []string{"internal/campaign", "pkg"}},
	{"internal/experiment", []string{"internal/figures", "pkg"}},
	{"internal", []string{"internal", "pkg"}},
	{"pkg/groupcommit/vfs", nil},
	{"pkg/groupcommit", []string{"pkg/groupcommit"}},
	{"pkg/lease", []string{"pkg/groupcommit"}},
	{"pkg/mpirun", nil},
	{"pkg", nil},
}

func under(p, prefix string) bool { return p == prefix || strings.HasPrefix(p, prefix+"/") }

// arrowFault says why the file may not import the package, or "".
func arrowFault(file, imported string) string {
	for _, a := range arrows {
		if !under(file, a.part) {
			continue
		}
		if under(imported, a.part) && a.part != "experiments" {
			return ""
		}
		if a.part == "experiments" && under(imported, "experiments") {
			return experimentFault(file, imported)
		}
		for _, m := range a.may {
			if under(imported, m) {
				return ""
			}
		}
		return fmt.Sprintf("%s may import only %v", a.part, a.may)
	}
	return ""
}

// experimentFault keeps the experiments apart: the registry in experiments/ imports them all, none imports another.
func experimentFault(file, imported string) string {
	from, to := strings.Split(file, "/"), strings.Split(imported, "/")
	switch {
	case len(from) == 2: // experiments/x.go, the registry
		return ""
	case len(to) > 1 && from[1] == to[1]:
		return ""
	}
	return "no experiment imports another, nor the registry"
}

func TestImportsFollowTheArrowsOfTheDesign(t *testing.T) {
	for _, s := range sources(t) {
		for _, imp := range s.file.Imports {
			name := strings.Trim(imp.Path.Value, `"`)
			if strings.HasPrefix(name, module) {
				if fault := arrowFault(s.path, strings.TrimPrefix(name, module)); fault != "" && !s.tests {
					t.Errorf("%s imports %s: %s", s.path, name, fault)
				}
				continue
			}
			thirdParty := strings.Contains(strings.Split(name, "/")[0], ".")
			if under(s.path, "pkg") && thirdParty && !s.tests && !strings.HasPrefix(name, "golang.org/x/sys/") {
				t.Errorf("%s imports %s: pkg/ takes no module but golang.org/x/sys", s.path, name)
			}
		}
	}
}

func TestArrowCheckerCatchesPlantedImports(t *testing.T) {
	bad := [][2]string{
		{"pkg/groupcommit/batch.go", "pkg/lease"},
		{"pkg/groupcommit/vfs/os.go", "pkg/groupcommit"},
		{"pkg/mpirun/run.go", "pkg/lease"},
		{"pkg/lease/table.go", "internal/campaign"},
		{"internal/campaign/master.go", "internal/hybrid"},
		{"experiments/micro/micro.go", "experiments/faults"},
		{"experiments/micro/micro.go", "experiments"},
		{"magefile.go", "pkg/lease"},
		{"cmd/shardlease/main.go", "internal/evidence"},
	}
	for _, b := range bad {
		if arrowFault(b[0], b[1]) == "" {
			t.Errorf("%s importing %s was let through", b[0], b[1])
		}
	}
	good := [][2]string{
		{"pkg/lease/table.go", "pkg/groupcommit/vfs"},
		{"experiments/run.go", "experiments/micro"},
		{"experiments/micro/workload/main.go", "experiments/micro"},
		{"internal/hybrid/master.go", "internal/campaign"},
	}
	for _, g := range good {
		if fault := arrowFault(g[0], g[1]); fault != "" {
			t.Errorf("%s importing %s was refused: %s", g[0], g[1], fault)
		}
	}
}

func TestFilesAndFunctionsStayShort(t *testing.T) {
	for _, s := range sources(t) {
		if n := bytes.Count(s.text, []byte("\n")); n > maxFileLines {
			t.Errorf("%s has %d lines; split it by meaning (limit %d)", s.path, n, maxFileLines)
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || s.tests {
				continue
			}
			n := s.fset.Position(f.End()).Line - s.fset.Position(f.Pos()).Line + 1
			if n > maxFunctionLines {
				t.Errorf("%s: %s has %d lines (limit %d)", s.fset.Position(f.Pos()), f.Name.Name, n, maxFunctionLines)
			}
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	documented := map[string]bool{}
	for _, s := range sources(t) {
		if s.tests && documented[s.dir()] {
			continue
		}
		documented[s.dir()] = documented[s.dir()] || s.file.Doc != nil
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("%s has no package comment", dir)
		}
	}
}

// banned calls and what to use in their place. The part names where the rule holds.
var banned = []struct {
	part, call, instead string
	except              []string
}{
	{"pkg/lease", "os.Rename", "the vfs.FS seam", nil},
	{"pkg/lease", "os.OpenFile", "the vfs.FS seam", nil},
	{"pkg/groupcommit", "os.Rename", "the vfs.FS seam", []string{"pkg/groupcommit/vfs/"}},
	{"pkg", "log.Fatal", "a returned error", nil},
	{"pkg", "log.Printf", "a returned error", nil},
	{"pkg", "os.Exit", "a returned error", []string{"pkg/mpirun/mpi/"}}, // MPI_Abort does not return
	{"internal", "log.Fatal", "a returned error", nil},
	{"experiments", "log.Fatal", "a returned error", nil},
	{"experiments", "sh.Run", "the runner that ends the whole process group", nil},
}

func TestBannedCalls(t *testing.T) {
	for _, s := range sources(t) {
		if s.tests {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, ok := sel.X.(*ast.Ident)
			if !ok {
				return true
			}
			call := x.Name + "." + sel.Sel.Name
			for _, b := range banned {
				excepted := slices.ContainsFunc(b.except, func(e string) bool { return strings.HasPrefix(s.path, e) })
				if call == b.call && under(s.path, b.part) && !excepted {
					t.Errorf("%s calls %s; use %s", s.fset.Position(n.Pos()), call, b.instead)
				}
			}
			return true
		})
	}
}

var (
	leftover  = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X|HA` + `CK)\b`)
	codeBlock = regexp.MustCompile("(?s)```.*?```")
	link      = regexp.MustCompile(`\]\(([^)#\s]+)(?:#[^)]*)?\)`)
)

func TestNothingIsLeftForLater(t *testing.T) {
	walk(t, func(rel string, text []byte) {
		switch path.Ext(rel) {
		case ".go", ".md", ".yaml", ".tmpl", ".c", ".h", ".sh":
			if m := leftover.Find(text); m != nil {
				t.Errorf("%s contains %s", rel, m)
			}
		}
	})
}

func TestLinksInDocumentsLeadSomewhere(t *testing.T) {
	root := repositoryRoot(t)
	walk(t, func(rel string, text []byte) {
		if path.Ext(rel) != ".md" || under(rel, "evidence") {
			return
		}
		for _, m := range link.FindAllSubmatch(codeBlock.ReplaceAll(text, nil), -1) {
			to := string(m[1])
			if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, path.Dir(rel), filepath.FromSlash(to))); err != nil {
				t.Errorf("%s links to %s, which isn't there", rel, to)
			}
		}
	})
}
