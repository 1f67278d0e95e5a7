package top

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/rivo/uniseg"

	"github.com/nereid-serving/nereid/server/status"
)

// The tests of this file are internal because only a terminal has a screen and keys.

// many returns a view with n models.
func many(n int) *View {
	v := &View{At: time.Unix(5000, 0), URL: "http://host:8000", Notes: []string{"no metrics at x"}, Server: Server{Name: "triton", Control: "explicit", GPUs: []GPU{{UUID: "GPU-1"}}}, hasStatus: true}
	for i := range n {
		r := Row{Model: fmt.Sprintf("model_%02d", i), Version: "1", State: "READY", Rate: number((i * 7) % 10), Reason: "a\nb", Groups: []status.Group{{Name: "g", Count: 1}}}
		r.Instances = []Instance{{Instance: status.Instance{Name: "x", State: "dead", LastLoss: &status.Loss{Text: strings.Repeat("wide 漢字 ", 40)}}}}
		v.Models = append(v.Models, r)
	}
	for i := range 60 {
		v.Log = append(v.Log, status.Line{Level: "error", Text: fmt.Sprintf("line %d\n  traceback", i)})
	}
	v.Errors = v.Log
	return v
}

// TestFrameFitsEveryTerminal checks that the frame fits terminals of all sizes while keys are
// pressed.
func TestFrameFitsEveryTerminal(t *testing.T) {
	for _, v := range []*View{nil, many(0), many(1), many(40)} {
		u := &ui{}
		for _, key := range []string{"", "d", "tab", "end", "e", "page up", "l", "i", "tab", "down", "page down", "end", "s", "S", "w", "?", "x", "/", "9", "enter", "escape", "u", "n", "n", "7", "home"} {
			u.press(key, v, 24)
			for _, width := range []int{1, 19, 20, 37, 80, 300} {
				for _, height := range []int{1, 3, 4, 5, 8, 11, 12, 24, 100} {
					lines := u.frame(v, "http://host:8000", width, height)
					if len(lines) > height {
						t.Fatalf("key %q, %d x %d: got %d lines", key, width, height, len(lines))
					}
					for _, l := range lines {
						if strings.ContainsAny(l.String(), "\n\x1b\t") {
							t.Fatalf("key %q: got the control characters of %q", key, l)
						}
					}
				}
			}
		}
	}
	v := many(40)
	for _, width := range []int{40, 60, 80, 120} {
		u := &ui{}
		for _, l := range modelTable(u.rows(v), u, width) {
			if w := uniseg.StringWidth(l.String()); w > width {
				t.Errorf("%d columns: got a line of %d: %s", width, w, l)
			}
		}
	}
}

func TestTheChosenRowStaysInSight(t *testing.T) {
	v, u := many(40), &ui{}
	shows := func(want string) {
		t.Helper()
		for _, l := range u.frame(v, "", 100, 24) {
			if len(l) > 0 && l[0].style == selected && strings.Contains(l.String(), want+" ") {
				return
			}
		}
		t.Errorf("%s is not selected in\n%v", want, u.frame(v, "", 100, 24))
	}
	shows("model_00")
	for range 30 {
		u.press("down", v, 24)
	}
	shows("model_30")
	u.press("end", v, 24)
	shows("model_39")
	u.sort = columnOf("rate") // largest first; it stays selected
	shows("model_39")
	u.press("home", v, 24)
	shows("model_07")
	u.press("/", v, 24)
	for _, key := range []string{"_", "1", "x", "backspace", "enter"} {
		u.press(key, v, 24)
	}
	if rows := u.rows(v); len(rows) != 10 || rows[0].Model != "model_17" {
		t.Errorf("got %d rows, the first %+v, want those with _1, the fastest first", len(rows), rows[0])
	}
	u.press("S", v, 24)
	if rows := u.rows(v); rows[0].Model != "model_10" {
		t.Errorf("got %s first, want the slowest", rows[0].Model)
	}
	word, all := keyOf(tcell.NewEventKey(tcell.KeyCtrlW, 0, tcell.ModCtrl)), keyOf(tcell.NewEventKey(tcell.KeyCtrlU, 0, tcell.ModCtrl))
	u.press("/", v, 24) // edits the current filter
	for _, step := range []struct{ key, want string }{
		{" ", "_1 "}, {"o", "_1 o"}, {word, "_1 "}, {word, ""}, {word, ""}, {"a", "a"}, {" ", "a "}, {"b", "a b"}, {all, ""}, {"enter", ""},
	} {
		u.press(step.key, v, 24)
		if u.ask != nil && u.ask.typed != step.want {
			t.Errorf("after %q: got %q typed, want %q", step.key, u.ask.typed, step.want)
		}
	}
	if n := len(u.rows(v)); n != 40 {
		t.Errorf("got %d rows with an empty filter, want 40", n)
	}
	u.press("escape", v, 24)
	if n := len(u.rows(v)); n != 40 {
		t.Errorf("got %d rows without a filter, want 40", n)
	}
}

func TestUnknownValuesComeLast(t *testing.T) {
	v := &View{Models: []Row{{Model: "a"}, {Model: "b", Queue: number(1)}, {Model: "c"}, {Model: "d", Queue: number(5)}}}
	u := &ui{sort: columnOf("queue")}
	for want, reverse := range map[string]bool{"dbac": false, "bdac": true} {
		u.reverse = reverse
		got := ""
		for _, r := range u.rows(v) {
			got += r.Model
		}
		if got != want {
			t.Errorf("reverse %t: got %s, want %s", reverse, got, want)
		}
	}
}

// TestChangesAreConfirmed checks the actions that result from keys that change models.
func TestChangesAreConfirmed(t *testing.T) {
	v := many(2)
	press := func(keys ...string) (last *act, u *ui) {
		u = &ui{}
		for _, key := range keys {
			if _, a := u.press(key, v, 24); a != nil {
				last = a
			}
		}
		return last, u
	}
	for _, c := range []struct {
		keys    []string
		want    *act
		message string
	}{
		{[]string{"u", "y"}, &act{what: "unload", model: "model_00"}, ""},
		{[]string{"u", "enter"}, nil, "nothing was changed"},
		{[]string{"u", "u", "u"}, nil, ""},
		{[]string{"down", "r", "Y"}, &act{what: "load", model: "model_01"}, ""},
		{[]string{"n", "3", "enter", "y"}, &act{what: "instances", model: "model_00", count: 3}, ""},
		{[]string{"n", "3", "enter", "n"}, nil, "nothing was changed"},
		{[]string{"n", "0", "enter"}, nil, `got "0", want a number of instances, 1 or more`},
		{[]string{"n", "y", "enter"}, nil, `got "y", want a number of instances, 1 or more`},
		{[]string{"n", "escape"}, nil, ""},
	} {
		got, u := press(c.keys...)
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want || u.message != c.message && c.message != "" {
			t.Errorf("%q: got %+v and %q, want %+v and %q", c.keys, got, u.message, c.want, c.message)
		}
	}
	v.Server.Control = "none"
	if got, u := press("u"); got != nil || !strings.Contains(u.message, "--model-control-mode=explicit") {
		t.Errorf("got %+v and %q of a server that changes nothing", got, u.message)
	}
	v.Server.Control = ""
	v.Models[0].State = "UNAVAILABLE"
	if got, u := press("n"); got != nil || !strings.Contains(u.message, "load it first") {
		t.Errorf("got %+v and %q of a model that is not loaded", got, u.message)
	}
}

func TestOnlyLoadedModelsAreUnloaded(t *testing.T) {
	for _, state := range []string{"", "UNAVAILABLE"} {
		v := many(1)
		v.Models[0].State = state
		u := &ui{}
		u.press("u", v, 24)
		if want := v.Models[0].Model + " is not loaded"; u.ask != nil || u.message != want || !u.wrong {
			t.Errorf("in state %q: got %q, want %q", state, u.message, want)
		}
		again := v.Models[0]
		again.Version, again.State = "2", "READY"
		v.Models = append(v.Models, again)
		if u.press("u", v, 24); u.ask == nil {
			t.Errorf("in state %q: got %q, want a question, as version 2 serves", state, u.message)
		}
	}
}

func TestTextsOfOthersAreHarmless(t *testing.T) {
	if got := clean("a\x1b[2J\u009bb\nc\u202e\xff"); got != `a\u001B[2J\u009Bb c\u202E\xFF` {
		t.Errorf("got %q", got)
	}
	for _, c := range []struct {
		text  string
		width int
		right bool
		want  string
	}{
		{"abc", 5, false, "abc  "}, {"abc", 5, true, "  abc"}, {"abcdef", 4, false, "abc…"}, {"漢字漢字", 4, false, "漢 …"}, {"漢字", 4, false, "漢字"}, {"abc", 0, false, ""},
	} {
		if got := fit(c.text, c.width, c.right); got != c.want {
			t.Errorf("fit %q to %d: got %q, want %q", c.text, c.width, got, c.want)
		}
	}
	for want, got := range map[string]string{
		"29µs": duration(29e-6), "1.1ms": duration(0.00112), "250ms": duration(0.25), "2.5s": duration(2.5), "61s": duration(61),
		"512 B": size(512), "1.0 KiB": size(1000), "30 MiB": size(30 << 20), "1.2 GiB": size(1.2 * (1 << 30)),
		"7": amount(7), "0.2": amount(0.21), "1205": amount(1204.6), "59s": ago(59 * time.Second), "2m 5s": ago(125 * time.Second), "3d 1h": ago(73 * time.Hour),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
