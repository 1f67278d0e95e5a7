package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// slowest is the number of tests that the closing lines name with their times; tests faster than
// noteworthy are left out.
const (
	slowest    = 10
	noteworthy = 5 * time.Second
)

// event is a line of "go test -json", as "go doc test2json" describes it.
type event struct {
	Action     string
	Package    string
	Test       string
	Elapsed    float64 // seconds
	Output     string
	ImportPath string // of a package that does not build
}

// name identifies a test of a package.
type name struct{ pkg, test string }

// running is a test that has not ended, or a package if its name has no test.
type running struct {
	since  time.Time
	output strings.Builder
	tests  int // of a package: how many of its tests have ended
}

// report formats the output of go test for people.
type report struct {
	w        io.Writer
	now      func() time.Time
	began    time.Time
	lastLine time.Time

	packages, ended         int
	passed, failed, skipped int
	running                 map[name]*running
	builds                  map[string]*strings.Builder // compiler output by import path
	reasons                 map[string][]string         // skipped tests by reason
	failures                []string
	times                   []duration
}

type duration struct {
	test string
	took time.Duration
}

func newReport(w io.Writer, packages int, now func() time.Time) *report {
	return &report{
		w: w, now: now, began: now(), lastLine: now(), packages: packages,
		running: map[name]*running{}, builds: map[string]*strings.Builder{}, reasons: map[string][]string{},
	}
}

func (r *report) say(format string, args ...any) {
	fmt.Fprintf(r.w, format, args...)
	r.lastLine = r.now()
}

// line handles one line of go test. A line that is not an event is printed unchanged. The label
// distinguishes parts of a package that run separately.
func (r *report) line(label string, line []byte) {
	var e event
	if line[0] != '{' || json.Unmarshal(line, &e) != nil {
		r.say("%s", line)
		return
	}
	if e.Package != "" {
		e.Package += label
	}
	switch {
	case e.Action == "build-output":
		r.build(e.ImportPath).WriteString(e.Output)
		return
	case e.Action == "build-fail":
		r.say("%s", r.build(e.ImportPath))
		return
	case e.Package == "":
		return
	}
	key := name{e.Package, e.Test}
	it := r.running[key]
	if it == nil {
		it = &running{since: r.now()}
		r.running[key] = it
	}
	switch e.Action {
	case "output":
		it.output.WriteString(e.Output)
	case "pass", "fail", "skip":
		delete(r.running, key)
		if e.Test == "" {
			r.packageEnded(e, it)
		} else {
			r.testEnded(e, it)
		}
	}
}

func (r *report) build(importPath string) *strings.Builder {
	if r.builds[importPath] == nil {
		r.builds[importPath] = &strings.Builder{}
	}
	return r.builds[importPath]
}

func (r *report) testEnded(e event, it *running) {
	test := short(e.Package) + "." + e.Test
	outermost := !strings.Contains(e.Test, "/")
	if pkg := r.running[name{e.Package, ""}]; pkg != nil && outermost {
		pkg.tests++
	}
	if outermost {
		r.times = append(r.times, duration{test, time.Duration(e.Elapsed * float64(time.Second))})
	}
	switch e.Action {
	case "pass":
		r.passed++
	case "skip":
		r.skipped++
		why := reason(it.output.String())
		r.reasons[why] = append(r.reasons[why], test)
	case "fail":
		r.failed++
		r.failures = append(r.failures, test)
		r.say("%s", it.output.String())
	}
}

// packageEnded prints go test's line about a package. A failed package may have more output: a
// panic, a data race, leftovers of its tests.
func (r *report) packageEnded(e event, it *running) {
	r.ended++
	said := strings.TrimSuffix(it.output.String(), "\n")
	if e.Action == "fail" {
		// A test that was running when the process died has no end event.
		for _, key := range slices.SortedFunc(maps.Keys(r.running), byName) {
			if key.pkg == e.Package {
				r.failures = append(r.failures, short(key.pkg)+"."+key.test)
				r.failed++
				r.say("%s", r.running[key].output.String())
				delete(r.running, key)
			}
		}
		if !slices.ContainsFunc(r.failures, func(test string) bool { return strings.HasPrefix(test, short(e.Package)+".") }) {
			r.failures = append(r.failures, short(e.Package))
			r.failed++
		}
	} else if at := strings.LastIndexByte(said, '\n'); at >= 0 {
		said = said[at+1:]
	}
	if said == "" {
		said = strings.ToUpper(e.Action) + "\t" + e.Package
	}
	r.say("%s\n%s\n", said, r.position())
}

// position returns the progress as text.
func (r *report) position() string {
	return fmt.Sprintf("    %d of %d packages, %d tests passed, %d failed, %s",
		r.ended, r.packages, r.passed, r.failed, r.now().Sub(r.began).Round(time.Second))
}

// tick is called periodically. It names the running tests after a long silence.
func (r *report) tick() {
	now := r.now()
	if now.Sub(r.lastLine) < silence {
		return
	}
	var lines []string
	for _, key := range slices.SortedFunc(maps.Keys(r.running), byName) {
		if key.test != "" || r.running[key].tests == 0 && !r.hasRunningTest(key.pkg) {
			continue
		}
		var tests []string
		for _, other := range slices.SortedFunc(maps.Keys(r.running), byName) {
			if other.pkg == key.pkg && other.test != "" && !strings.Contains(other.test, "/") {
				tests = append(tests, fmt.Sprintf("%s (%s)", other.test, now.Sub(r.running[other].since).Round(time.Second)))
			}
		}
		if len(tests) > 3 {
			tests = append(tests[:3], fmt.Sprintf("%d more", len(tests)-3))
		}
		lines = append(lines, fmt.Sprintf("    %s: %d tests done; now %s\n", short(key.pkg), r.running[key].tests, strings.Join(tests, ", ")))
	}
	if len(lines) == 0 {
		lines = []string{"    compiling\n"}
	}
	r.say("%s%s\n", strings.Join(lines, ""), r.position())
}

func (r *report) hasRunningTest(pkg string) bool {
	for key := range r.running {
		if key.pkg == pkg && key.test != "" {
			return true
		}
	}
	return false
}

// end prints the closing lines.
func (r *report) end() {
	slices.SortStableFunc(r.times, func(a, b duration) int { return cmp.Compare(b.took, a.took) })
	for i, d := range r.times {
		if i == slowest || d.took < noteworthy {
			break
		}
		if i == 0 {
			r.say("\nThe slowest:\n")
		}
		r.say("    %6.1fs %s\n", d.took.Seconds(), d.test)
	}
	for _, why := range slices.Sorted(maps.Keys(r.reasons)) {
		tests := r.reasons[why]
		named := tests
		if len(named) > 3 {
			named = append(slices.Clone(tests[:3]), fmt.Sprintf("%d more", len(tests)-3))
		}
		r.say("\nSkipped: %s\n    %s\n", why, strings.Join(named, ", "))
	}
	if len(r.failures) > 0 {
		r.say("\nFailed:\n    %s\n", strings.Join(r.failures, "\n    "))
	}
	r.say("\n%d passed, %d failed, %d skipped in %s\n", r.passed, r.failed, r.skipped, r.now().Sub(r.began).Round(100*time.Millisecond))
}

// reason returns the message of a skipped test, without file and line.
func reason(output string) string {
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if file, text, ok := strings.Cut(line, ": "); ok && strings.Contains(file, ".go:") {
			return text
		}
	}
	return "no reason was given"
}

// short returns the path of a package inside this module.
func short(pkg string) string {
	return strings.TrimPrefix(pkg, "github.com/nereid-serving/nereid/")
}

func byName(a, b name) int {
	return cmp.Or(cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.test, b.test))
}
