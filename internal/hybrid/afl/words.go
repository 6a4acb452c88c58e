package afl

import (
	"fmt"
	"strings"
)

// SplitWords splits a command line into words as a POSIX shell does: blanks separate, single quotes keep everything,
// double quotes and the backslash quote as in sh. There is no expansion of any kind: "$HOME" and "*" stay as they are.
func SplitWords(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	started := false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; c {
		case ' ', '\t', '\n':
			if started {
				words = append(words, word.String())
				word.Reset()
				started = false
			}
		case '\'', '"':
			quoted, n, err := unquote(line[i:])
			if err != nil {
				return nil, err
			}
			word.WriteString(quoted)
			started = true
			i += n - 1
		case '\\':
			if i+1 == len(line) {
				return nil, fmt.Errorf("command line ends with a backslash: %q", line)
			}
			i++
			word.WriteByte(line[i])
			started = true
		default:
			word.WriteByte(c)
			started = true
		}
	}
	if started {
		words = append(words, word.String())
	}
	return words, nil
}

// unquote reads the quoted string that s starts with, and says how many bytes of s it took.
func unquote(s string) (text string, n int, err error) {
	quote := s[0]
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == quote:
			return b.String(), i + 1, nil
		case c == '\\' && quote == '"' && i+1 < len(s) && strings.IndexByte("\"\\$`", s[i+1]) >= 0:
			i++
			b.WriteByte(s[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", 0, fmt.Errorf("command line has an unclosed %c: %q", quote, s)
}
