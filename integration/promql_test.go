package integration

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// selector is a metric in a PromQL expression with its matchers.
type selector struct {
	metric   string
	matchers []matcher
}

type matcher struct{ label, operator, value string }

// promql holds the metrics and labels in a PromQL expression.
type promql struct {
	selectors []selector
	grouping  []string // labels of a "by" clause
	grouped   bool     // the expression has a "by" clause
}

// promqlToken matches the PromQL tokens that dashboards need. A duration in brackets is one token,
// and so is a string.
var promqlToken = regexp.MustCompile(`^(?:\s+|"(?:[^"\\]|\\.)*"|\[\w+\]|[a-zA-Z_:][a-zA-Z0-9_:]*|[0-9.]+|=~|!~|!=|[-+*/(){},=<>])`)

// promqlFunctions are the functions and aggregations that expressions may use.
var promqlFunctions = []string{"avg", "count", "histogram_quantile", "increase", "max", "min", "rate", "sum", "topk"}

// parsePromQL returns the metrics, matchers and groupings of an expression. It supports a subset of
// PromQL and rejects everything else.
func parsePromQL(text string) (found promql, err error) {
	var tokens []string
	for rest := text; rest != ""; {
		token := promqlToken.FindString(rest)
		if token == "" {
			return found, fmt.Errorf("unknown beginning of %q", rest)
		}
		if rest = rest[len(token):]; strings.TrimSpace(token) != "" {
			tokens = append(tokens, token)
		}
	}
	depth := 0
	at := func(i int) string {
		if i < len(tokens) {
			return tokens[i]
		}
		return ""
	}
	for i := 0; i < len(tokens); i++ {
		switch token := tokens[i]; {
		case token == "(":
			depth++
		case token == ")":
			if depth--; depth < 0 {
				return found, fmt.Errorf("a parenthesis too many in %q", text)
			}
		case token == "by":
			found.grouped = true
			end := slices.Index(tokens[i:], ")")
			if at(i+1) != "(" || end < 0 {
				return found, fmt.Errorf("no labels behind by in %q", text)
			}
			for _, label := range tokens[i+2 : i+end] {
				if label != "," {
					found.grouping = append(found.grouping, label)
				}
			}
			i += end
		case token == "{":
			return found, fmt.Errorf("braces without a metric in %q", text)
		case !isName(token):
		case at(i+1) == "(" || at(i+1) == "by":
			if !slices.Contains(promqlFunctions, token) {
				return found, fmt.Errorf("unknown function %s in %q", token, text)
			}
		default:
			s := selector{metric: token}
			for i++; at(i) == "{" || at(i) == ","; i += 4 {
				value, err := strconv.Unquote(at(i + 3))
				if err != nil {
					return found, fmt.Errorf("matcher %q in %q: %w", tokens[i:], text, err)
				}
				s.matchers = append(s.matchers, matcher{at(i + 1), at(i + 2), value})
			}
			if len(s.matchers) > 0 {
				if at(i) != "}" {
					return found, fmt.Errorf("matchers of %s have no end in %q", s.metric, text)
				}
			} else {
				i--
			}
			found.selectors = append(found.selectors, s)
		}
	}
	if depth != 0 {
		return found, fmt.Errorf("%d parentheses are open at the end of %q", depth, text)
	}
	if len(found.selectors) == 0 {
		return found, fmt.Errorf("no metric in %q", text)
	}
	return found, nil
}

func isName(token string) bool {
	c := token[0]
	return c == '_' || c == ':' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// sampled holds the labels of each sample on a metrics page, by metric name.
type sampled map[string][]map[string]string

var (
	sampleLine  = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? \S+$`)
	sampleLabel = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"`)
)

func parseSamples(t *testing.T, page string) sampled {
	t.Helper()
	all := make(sampled)
	for line := range strings.Lines(page) {
		if line = strings.TrimSuffix(line, "\n"); line == "" || line[0] == '#' {
			continue
		}
		match := sampleLine.FindStringSubmatch(line)
		if match == nil {
			t.Fatalf("the line %q is no sample", line)
		}
		labels := make(map[string]string)
		for _, pair := range sampleLabel.FindAllStringSubmatch(match[2], -1) {
			labels[pair[1]] = pair[2]
		}
		all[match[1]] = append(all[match[1]], labels)
	}
	return all
}

// missing describes the part of a selector that matches no sample, or returns "".
func (all sampled) missing(s selector) string {
	samples, ok := all[s.metric]
	if !ok {
		return "no metric " + s.metric
	}
	for _, m := range s.matchers {
		whole, err := regexp.Compile("^(?:" + m.value + ")$")
		if err != nil {
			return err.Error()
		}
		samples = slices.DeleteFunc(slices.Clone(samples), func(labels map[string]string) bool {
			value, has := labels[m.label]
			switch m.operator {
			case "=":
				return !has || value != m.value
			case "!=":
				return !has || value == m.value
			case "=~":
				return !has || !whole.MatchString(value)
			case "!~":
				return !has || whole.MatchString(value)
			}
			return true
		})
		if len(samples) == 0 {
			return fmt.Sprintf("no sample of %s with %s%s%q", s.metric, m.label, m.operator, m.value)
		}
	}
	return ""
}

// TestPromQLIsRead checks that the parser accepts valid expressions and reports unknown metrics,
// labels and syntax errors.
func TestPromQLIsRead(t *testing.T) {
	all := parseSamples(t, "# HELP a x\na{model=\"m\",le=\"+Inf\"} 1\nb 2\n")
	for text, want := range map[string]string{
		`b`: "",
		`sum by (le, model) (rate(a{model=~"m|n",le!="1"}[5m])) / sum(b)`: "",
		`a{model="n"}`:        `no sample of a with model="n"`,
		`a{other!="n"}`:       `no sample of a with other!="n"`,
		`b{model=~".*"}`:      `no sample of b with model=~".*"`,
		`rate(c[5m])`:         "no metric c",
		`sum(b`:               `1 parentheses are open at the end of "sum(b"`,
		`b)`:                  `a parenthesis too many in "b)"`,
		`guess(b)`:            `unknown function guess in "guess(b)"`,
		`a{model="m"`:         `matchers of a have no end in "a{model=\"m\""`,
		`sum by (le) ({a=1})`: `braces without a metric in "sum by (le) ({a=1})"`,
		`1 + 2`:               `no metric in "1 + 2"`,
		`b @ 5`:               `unknown beginning of "@ 5"`,
	} {
		found, err := parsePromQL(text)
		got := ""
		if err != nil {
			got = err.Error()
		}
		for _, s := range found.selectors {
			if err == nil && got == "" {
				got = all.missing(s)
			}
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}
