package report

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// tests lists the tests below pkg/ that cite an invariant, in their doc comment or their body: the code itself is asked, so that
// the list can't be out of date.
func (b *builder) tests(invariant string) (string, error) {
	cites := regexp.MustCompile(`\b` + regexp.QuoteMeta(invariant) + `\b`)
	var names []string
	root := filepath.Join(b.Root, "pkg")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		found, err := citing(path, cites)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		for _, f := range found {
			names = append(names, filepath.ToSlash(dir)+"."+f)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	if len(names) == 0 {
		return "", fmt.Errorf("no test below pkg/ cites %s", invariant)
	}
	slices.Sort(names)
	for i, n := range names {
		names[i] = name(n)
	}
	return strings.Join(slices.Compact(names), "<br>"), nil
}

// camel finds where a long name may be broken into lines.
var camel = regexp.MustCompile(`([a-z.])([A-Z])`)

// citing gives the test functions of a file with a match in their comment or body.
func citing(path string, cites *regexp.Regexp) ([]string, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	type span struct{ from, to token.Pos }
	var out []string
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || !(strings.HasPrefix(f.Name.Name, "Test") || strings.HasPrefix(f.Name.Name, "Fuzz")) {
			continue
		}
		s := span{f.Pos(), f.End()}
		text := f.Doc.Text()
		for _, group := range file.Comments {
			if s.from <= group.Pos() && group.End() <= s.to {
				text += group.Text()
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				text += " " + lit.Value
			}
			return true
		})
		if cites.MatchString(text) {
			out = append(out, f.Name.Name)
		}
	}
	return out, nil
}
