package infer_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/nereid-serving/nereid/infer"
)

// TestErrorsRepeatNoLargeTexts checks that Errorf truncates long arguments of any type to the same
// total size, but not the message of another Error.
func TestErrorsRepeatNoLargeTexts(t *testing.T) {
	long := strings.Repeat("ä", infer.MaxEcho)
	for _, arg := range []any{long, []byte(long), errors.New(long)} {
		text := infer.Errorf(infer.InvalidArg, "%s", arg).Message
		if len(text) > infer.MaxEcho || len(text) < infer.MaxEcho-8 || !utf8.ValidString(text) || !strings.HasSuffix(text, "ä…") {
			t.Errorf("%T of %d bytes: the error has %d bytes", arg, len(long), len(text))
		}
	}
	for _, tt := range []struct {
		name string
		args []any
		want int // bytes of the message in JSON
	}{
		{"all fit", []any{long[:1000], long[:1000]}, 2000},
		{"two long ones", []any{long, long, "short"}, infer.MaxEcho},
		{"one long one", []any{"short", long[:1000], errors.New(long)}, infer.MaxEcho},
		{"three of which one is shorter", []any{long[:2000], long[:2000], long[:1000]}, infer.MaxEcho},
		{"control characters", []any{strings.Repeat("\x01", infer.MaxEcho)}, infer.MaxEcho},
		{"few control characters too many", []any{strings.Repeat("\x01", infer.MaxEcho/6+1)}, infer.MaxEcho},
		{"quotes", []any{strings.Repeat(`"`, infer.MaxEcho), strings.Repeat("a", 1000)}, infer.MaxEcho},
		{"a message of an Error", []any{&infer.Error{Message: long}}, len(long)},
	} {
		text := infer.Errorf(infer.InvalidArg, strings.Repeat("%s", len(tt.args)), tt.args...).Message
		size := len(text) + 5*strings.Count(text, "\x01") + strings.Count(text, `"`)
		if size > tt.want || size < tt.want-8 || !utf8.ValidString(text) {
			t.Errorf("%s: the error has %d bytes, want %d", tt.name, size, tt.want)
		}
		if short := strings.Contains(fmt.Sprint(tt.args), "short"); short && !strings.Contains(text, "short") {
			t.Errorf("%s: the short text is cut", tt.name)
		}
	}
	full := &infer.Error{Code: infer.Unavailable, OutOfMemory: true, Message: "full"}
	for _, arg := range []error{full, fmt.Errorf("read: %w", full)} {
		if got := infer.Errorf(infer.InvalidArg, "the body is not JSON: %v", arg); got != full {
			t.Errorf("a lack of memory: got %v %q, want that error alone", got.Code, got)
		}
		if got := infer.Errorf(infer.Unavailable, "the batch: %v", arg); !got.OutOfMemory || got.Message != "the batch: "+arg.Error() {
			t.Errorf("a lack of memory, with more text: got %+v", got)
		}
	}
	if text := infer.Errorf(infer.InvalidArg, "%s %d %v", "short", 5, nil).Message; text != "short 5 <nil>" {
		t.Errorf("got %q", text)
	}
}
