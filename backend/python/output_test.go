package python

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/rs/zerolog"
)

// TestOutputLines writes what models print and compares what is logged.
func TestOutputLines(t *testing.T) {
	long := strings.Repeat("x", 3*maxLine)
	log := &testkit.Buffer{}
	o, far, err := outputPipe(zerolog.New(log))
	if err != nil {
		t.Fatal(err)
	}
	go o.run()
	for _, part := range []string{"one\ntwo", "o\r\n\n", "\xff\xfe\n", long, long + "\nlast"} {
		if _, err := far.WriteString(part); err != nil {
			t.Fatal(err)
		}
	}
	if err := far.Close(); err != nil {
		t.Fatal(err)
	}
	<-o.done
	o.finish()
	want := []string{"one", "twoo", "", "\ufffd", strings.Repeat("x", maxLine), "last"}
	if got := o.lastLines(); len(got) != len(want) {
		t.Errorf("got %d lines, want %d", len(got), len(want))
	} else {
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("line %d: got %.30q of %d bytes, want %.30q of %d", i, got[i], len(got[i]), want[i], len(want[i]))
			}
		}
	}
	if n := strings.Count(log.String(), "\n"); n != len(want) {
		t.Errorf("%d lines were logged, want %d", n, len(want))
	}
}

// TestOutputOfALingeringChild ends the pipe though somebody still holds it.
func TestOutputOfALingeringChild(t *testing.T) {
	o, far, err := outputPipe(zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	go o.run()
	if _, err := far.WriteString("said\n"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	o.finish()
	if took := time.Since(began); took > patience {
		t.Errorf("finish took %v", took)
	}
	if lines := o.lastLines(); len(lines) != 1 || lines[0] != "said" {
		t.Errorf("got lines %q, want what was said", lines)
	}
}

func TestOutputKeepsTheLastLines(t *testing.T) {
	o := &output{log: zerolog.Nop()}
	limit := lineLimit{tokens: linesAtOnce, last: time.Now()}
	for i := range 100 {
		o.emit([]byte{byte(i)}, &limit)
	}
	if lines := o.lastLines(); len(lines) != tailLines || lines[0] != string([]byte{100 - tailLines}) {
		t.Errorf("got %d lines that begin with %q", len(lines), lines[0])
	}
}

// TestLineLimit lets a burst through, drops what exceeds it, and says how much.
func TestLineLimit(t *testing.T) {
	var log bytes.Buffer
	logger := zerolog.New(&log)
	limit := lineLimit{tokens: 3, last: time.Now().Add(time.Hour)}
	for i, want := range []bool{true, true, true, false, false} {
		if got := limit.allow(logger, 1); got != want {
			t.Errorf("line %d: got %t, want %t", i, got, want)
		}
	}
	limit.last = time.Now().Add(-2 * lineTick)
	if !limit.allow(logger, 1) || limit.tokens != 2*linesPerTick-1 {
		t.Errorf("after two ticks: got %d tokens, want %d", limit.tokens, 2*linesPerTick-1)
	}
	if !strings.Contains(log.String(), `"lines":2`) {
		t.Errorf("log is %q, want the number of lines that were dropped", log.String())
	}
}

func TestCut(t *testing.T) {
	if got := cut("short"); got != "short" {
		t.Errorf("got %q", got)
	}
	if got := cut(strings.Repeat("x", maxLine-1) + "ü"); got != strings.Repeat("x", maxLine-1) {
		t.Errorf("got %d bytes, want the text without half a letter", len(got))
	}
}
