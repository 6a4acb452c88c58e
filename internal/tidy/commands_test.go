package tidy

import (
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var codeSpan = regexp.MustCompile("`([^`\n]+)`")

// commands are the code of a document line by line: spans, indented and fenced lines, without comments.
func commands(rel string, text []byte) []string {
	var found []string
	fenced := false
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
			continue
		}
		code := [][]string{{"", line}}
		if !fenced && !strings.HasPrefix(line, "    ") && path.Ext(rel) == ".md" {
			code = codeSpan.FindAllStringSubmatch(line, -1)
		}
		for _, m := range code {
			command, _, _ := strings.Cut(m[1], " #")
			found = append(found, strings.TrimSpace(command))
		}
	}
	return found
}

// documented calls f for each command of each document that begins with prefix, with the words after it.
func documented(t *testing.T, prefix string, f func(rel string, words []string)) {
	t.Helper()
	n := 0
	walk(t, func(rel string, text []byte) {
		if (path.Ext(rel) != ".md" || under(rel, "evidence")) && rel != ".ci/run" {
			return
		}
		for _, command := range commands(rel, text) {
			if rest, ok := strings.CutPrefix(command, prefix+" "); ok {
				n++
				f(rel, strings.Fields(rest))
			}
		}
	})
	if n == 0 {
		t.Errorf("no document names a command that begins with %q: the search is broken", prefix)
	}
}

// mageTargets are the names under which mage knows the exported functions of magefile.go.
func mageTargets(t *testing.T) map[string]bool {
	targets := map[string]bool{}
	for _, s := range sources(t) {
		if s.path != "magefile.go" {
			continue
		}
		for _, d := range s.file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || !fn.Name.IsExported() {
				continue
			}
			name := fn.Name.Name
			if fn.Recv != nil {
				name = fn.Recv.List[0].Type.(*ast.Ident).Name + ":" + name
			}
			targets[strings.ToLower(name)] = true
		}
	}
	return targets
}

func TestDocumentsNameTargetsThatExist(t *testing.T) {
	targets := mageTargets(t)
	check := func(rel string, words []string) {
		for _, name := range unknown(targets, words) {
			t.Errorf("%s: mage has no target %s", rel, name)
		}
	}
	documented(t, "go tool mage", check)
	documented(t, "mage", check)
}

// unknown returns the words up to the first flag, or argument such as TARGET, that are no targets.
func unknown(targets map[string]bool, words []string) (names []string) {
	for _, word := range words {
		if strings.HasPrefix(word, "-") || strings.ToUpper(word) == word {
			break
		}
		if !targets[strings.ToLower(word)] {
			names = append(names, word)
		}
	}
	return names
}

func TestAWrongCommandInADocumentIsFound(t *testing.T) {
	text := "Say `mage setup`.\n\n    mage setup exp:micro wrong -run x # setup\n\n```\nmage alsoWrong\n```\nmage prose\n"
	var names []string
	for _, command := range commands("x.md", []byte(text)) {
		names = append(names, unknown(map[string]bool{"setup": true, "exp:micro": true}, strings.Fields(command)[1:])...)
	}
	if want := []string{"wrong", "alsoWrong"}; !slices.Equal(names, want) {
		t.Errorf("found %q, want %q", names, want)
	}
	if n := matching(sources(t), "./pkg/lease", selects["-fuzz"], regexp.MustCompile("NoSuchTarget")); n != 0 {
		t.Errorf("%d fuzz targets of no name", n)
	}
}

// selects says which functions a flag of go test selects.
var selects = map[string]*regexp.Regexp{
	"-run": regexp.MustCompile("^(Test|Example|Fuzz)"), "-fuzz": regexp.MustCompile("^Fuzz"), "-bench": regexp.MustCompile("^Benchmark"),
}

func TestDocumentsNameTestsThatExist(t *testing.T) {
	all := sources(t)
	documented(t, "go test", func(rel string, words []string) {
		for i, flag := range words[:len(words)-1] {
			kind := selects[flag]
			if kind == nil {
				continue
			}
			pattern := regexp.MustCompile(words[i+1])
			for _, pkg := range words {
				if !strings.HasPrefix(pkg, "./") {
					continue
				}
				n := matching(all, pkg, kind, pattern)
				if n == 0 || flag == "-fuzz" && n != 1 {
					t.Errorf("%s: go test %s: %d functions of %s match", rel, strings.Join(words, " "), n, pkg)
				}
			}
		}
	})
}

// matching counts the test functions in a package, or in the packages of a pattern.
func matching(all []source, pkg string, kind, pattern *regexp.Regexp) (n int) {
	dir, below := strings.CutSuffix(strings.TrimPrefix(pkg, "./"), "/...")
	for _, s := range all {
		if !s.tests || s.dir() != dir && !(below && under(s.path, dir)) {
			continue
		}
		for _, d := range s.file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && kind.MatchString(fn.Name.Name) && pattern.MatchString(fn.Name.Name) {
				n++
			}
		}
	}
	return n
}
