package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// spoken is the output of go test for three packages: one passes, one has a failed and a skipped
// test, and one crashes in a test.
const spoken = `
{"Action":"start","Package":"m/good"}
{"Action":"run","Package":"m/good","Test":"TestA"}
{"Action":"output","Package":"m/good","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"m/good","Test":"TestA","Output":"    a_test.go:5: chatter\n"}
{"Action":"pass","Package":"m/good","Test":"TestA","Elapsed":7.5}
{"Action":"output","Package":"m/good","Output":"PASS\n"}
{"Action":"output","Package":"m/good","Output":"ok  \tm/good\t8.000s\n"}
{"Action":"pass","Package":"m/good","Elapsed":8}
{"Action":"start","Package":"m/bad"}
{"Action":"run","Package":"m/bad","Test":"TestB"}
{"Action":"output","Package":"m/bad","Test":"TestB","Output":"    b_test.go:9: got 1, want 2\n"}
{"Action":"fail","Package":"m/bad","Test":"TestB","Elapsed":0.1}
{"Action":"run","Package":"m/bad","Test":"TestC"}
{"Action":"output","Package":"m/bad","Test":"TestC","Output":"    c_test.go:3: no hammer here\n"}
{"Action":"skip","Package":"m/bad","Test":"TestC","Elapsed":0}
{"Action":"output","Package":"m/bad","Output":"FAIL\n"}
{"Action":"output","Package":"m/bad","Output":"FAIL\tm/bad\t0.200s\n"}
{"Action":"fail","Package":"m/bad","Elapsed":0.2}
{"Action":"start","Package":"m/dead"}
{"Action":"run","Package":"m/dead","Test":"TestD"}
{"Action":"output","Package":"m/dead","Test":"TestD","Output":"panic: boom\n"}
{"Action":"output","Package":"m/dead","Output":"FAIL\tm/dead\t0.300s\n"}
{"Action":"fail","Package":"m/dead","Elapsed":0.3}
{"ImportPath":"m/broken","Action":"build-output","Output":"broken.go:1: syntax error\n"}
{"ImportPath":"m/broken","Action":"build-fail"}
{"Action":"output","Package":"m/broken","Output":"FAIL\tm/broken [build failed]\n"}
{"Action":"fail","Package":"m/broken","Elapsed":0}
this line is none of test2json's
`

func TestReportHasALineForEachPackage(t *testing.T) {
	var out strings.Builder
	now := time.Unix(0, 0)
	r := newReport(&out, 4, func() time.Time { return now })
	for line := range strings.Lines(strings.TrimPrefix(spoken, "\n")) {
		now = now.Add(time.Second)
		r.line("", []byte(line))
	}
	r.end()

	text := out.String()
	for _, want := range []string{
		"ok  \tm/good\t8.000s\n    1 of 4 packages, 1 tests passed, 0 failed, 8s\n",
		"    b_test.go:9: got 1, want 2\n",
		"FAIL\tm/bad\t0.200s\n    2 of 4 packages, 1 tests passed, 1 failed, ",
		"panic: boom\n",
		"FAIL\tm/dead\t0.300s\n    3 of 4 packages, 1 tests passed, 2 failed, ",
		"broken.go:1: syntax error\n",
		"FAIL\tm/broken [build failed]\n    4 of 4 packages, 1 tests passed, 3 failed, ",
		"this line is none of test2json's\n",
		"\nThe slowest:\n       7.5s m/good.TestA\n",
		"\nSkipped: no hammer here\n    m/bad.TestC\n",
		"\nFailed:\n    m/bad.TestB\n    m/dead.TestD\n    m/broken\n",
		"\n1 passed, 3 failed, 1 skipped in ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "chatter") {
		t.Errorf("a test that passed is printed:\n%s", text)
	}
}

// TestReportNamesRunningTests checks that the running tests are named after a long silence.
func TestReportNamesRunningTests(t *testing.T) {
	var out strings.Builder
	now := time.Unix(0, 0)
	r := newReport(&out, 2, func() time.Time { return now })
	r.line("", []byte(`{"Action":"start","Package":"m/slow"}`+"\n"))
	r.line("", []byte(`{"Action":"run","Package":"m/slow","Test":"TestE"}`+"\n"))
	r.line("", []byte(`{"Action":"run","Package":"m/slow","Test":"TestE/part"}`+"\n"))
	now = now.Add(silence - time.Second)
	r.tick()
	if out.Len() > 0 {
		t.Fatalf("got %q before %s are over", out.String(), silence)
	}
	now = now.Add(time.Second)
	r.tick()
	r.tick()
	want := "    m/slow: 0 tests done; now TestE (30s)\n    0 of 2 packages, 0 tests passed, 0 failed, 30s\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// TestPartsHaveAllTests checks that each test is in exactly one part, and benchmarks are in none.
func TestPartsHaveAllTests(t *testing.T) {
	parts := split("TestA\nTestB\nFuzzC\nBenchmarkD\nExampleE\nok  \tm/good\t0.010s\n", 2)
	if got := fmt.Sprint(parts); got != "[[TestA FuzzC] [TestB ExampleE]]" {
		t.Errorf("got %s", got)
	}
	var out strings.Builder
	r := newReport(&out, 2, time.Now)
	for _, part := range []string{" (1)", " (2)"} {
		r.line(part, []byte(`{"Action":"fail","Package":"m/good","Test":"TestA"}`+"\n"))
		r.line(part, []byte(`{"Action":"fail","Package":"m/good"}`+"\n"))
	}
	r.end()
	for _, want := range []string{"2 of 2 packages", "    m/good (1).TestA\n    m/good (2).TestA\n", "0 passed, 2 failed"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got %q, want %q in it", out.String(), want)
		}
	}
}

func TestArgumentsSplitIntoFlagsAndPatterns(t *testing.T) {
	flags, patterns := splitArguments([]string{"-race", "-timeout", "20m", "./a", "./b/..."})
	if got := strings.Join(flags, " ") + "|" + strings.Join(patterns, " "); got != "-race -timeout 20m|./a ./b/..." {
		t.Errorf("got %q", got)
	}
}
