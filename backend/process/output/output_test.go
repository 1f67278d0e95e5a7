package output

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/rs/zerolog"
)

// patience bounds every wait of these tests. It is long enough for a busy machine.
const patience = 60 * time.Second

// TestOutputIsCopiedAsItWasOrAsLines writes output of models to both streams and checks the copy:
// unchanged, or as log lines.
func TestOutputIsCopiedAsItWasOrAsLines(t *testing.T) {
	long := strings.Repeat("x", 3*MaxLine)
	printed := []string{"one\ntwo", "o\r\n\n", "\xff\xfe\n", long, long + "\nlast"}
	for _, tagged := range []bool{false, true} {
		log, out, errs := &testkit.Buffer{}, &testkit.Buffer{}, &testkit.Buffer{}
		to := [2]io.Writer{out, errs}
		if tagged {
			to = [2]io.Writer{}
		}
		o, far, err := Open(zerolog.New(log), to, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		o.Begin()
		for _, part := range printed {
			if _, err := far[0].WriteString(part); err != nil {
				t.Fatal(err)
			}
		}
		_ = far[0].Close()
		testkit.Eventually(t, patience, func() bool { return len(o.LastLines()) == 6 })
		if _, err := far[1].WriteString("{\"key\": \"\\u00e4\"}\n"); err != nil {
			t.Fatal(err)
		}
		_ = far[1].Close()
		<-o.done
		o.Finish()
		want := []string{"one", "twoo", "", "\ufffd", strings.Repeat("x", MaxLine), "last", `{"key": "\u00e4"}`}
		if got := o.LastLines(); !slices.Equal(got, want) {
			t.Errorf("got last lines %.60q", got)
		}
		if tagged {
			if n := strings.Count(log.String(), "\n"); n != len(want)+1 {
				t.Errorf("%d lines were logged, want %d and a warning of the cut", n, len(want))
			}
			continue
		}
		if want := "one\ntwoo\r\n\n\xff\xfe\n" + strings.Repeat("x", MaxLine) + "\nlast\n"; out.String() != want {
			t.Errorf("stdout got %.60q", out)
		}
		if want := "{\"key\": \"\\u00e4\"}\n"; errs.String() != want {
			t.Errorf("stderr got %q, want %q", errs, want)
		}
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, fmt.Sprintf(`"bytes":%d,"most":%d`, 2*len(long), MaxLine)) {
			t.Errorf("the log got %.200q, want one warning of a line of %d bytes", text, 2*len(long))
		}
	}
}

// TestOutputOfALingeringChild checks that Finish reads all that was printed, and returns although
// one child still holds the pipes and another goes on printing.
func TestOutputOfALingeringChild(t *testing.T) {
	o, far, err := Open(zerolog.Nop(), [2]io.Writer{}, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer far[0].Close()
	defer far[1].Close()
	if _, err := far[1].WriteString(strings.Repeat("\n", 60_000) + "said\n"); err != nil { // almost all that a pipe holds
		t.Fatal(err)
	}
	printing := make(chan struct{})
	go func() {
		defer close(printing)
		for err := error(nil); err == nil; {
			_, err = far[0].Write(make([]byte, 1<<10))
		}
	}()
	o.Begin()
	began := time.Now()
	o.Finish()
	if took := time.Since(began); took > patience {
		t.Errorf("finish took %v", took)
	}
	if lines := o.LastLines(); !slices.Contains(lines, "said") {
		t.Errorf("got lines %.100q, want what was said", lines)
	}
	<-printing // its pipe is closed
}

func TestOutputKeepsTheLastLines(t *testing.T) {
	o := &Capture{log: zerolog.Nop(), limit: NewLimit(Limits{})}
	for i := range 100 {
		o.emit(&source{}, []byte{byte(i)})
	}
	if lines := o.LastLines(); len(lines) != tailLines || lines[0] != string([]byte{100 - tailLines}) {
		t.Errorf("got %d lines that begin with %q", len(lines), lines[0])
	}
	o.emit(&source{}, bytes.Repeat([]byte("x"), 3*MaxLine))
	if lines := o.LastLines(); len(lines[tailLines-1]) != MaxLine {
		t.Errorf("got a last line of %d bytes, want %d", len(lines[tailLines-1]), MaxLine)
	}
}

// TestOutputKeepsToItsLimits checks limits of three lines at once and ten bytes per line.
func TestOutputKeepsToItsLimits(t *testing.T) {
	log, out := &testkit.Buffer{}, &testkit.Buffer{}
	o, far, err := Open(zerolog.New(log), [2]io.Writer{out, out}, Limits{Burst: 3, PerSecond: 1, LineBytes: 10})
	if err != nil {
		t.Fatal(err)
	}
	o.limit.last = time.Now().Add(time.Hour) // no second passes during the test
	o.Begin()
	if _, err := far[0].WriteString("0123456789ab\n2\n3\n4\n5\n"); err != nil {
		t.Fatal(err)
	}
	far[0].Close()
	far[1].Close()
	o.Finish()
	if got, want := out.String(), "0123456789\n2\n3\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if text := log.String(); !strings.Contains(text, `"bytes":12,"most":10`) || !strings.Contains(text, `"lines":2`) {
		t.Errorf("log is %q, want the line that was cut and the two that were dropped", text)
	}
}
