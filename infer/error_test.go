package infer

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestErrorsRepeatNoLargeTexts: what an error repeats is cut, whatever type it comes in, and
// the message of another Error stays whole.
func TestErrorsRepeatNoLargeTexts(t *testing.T) {
	long := strings.Repeat("ä", MaxEcho)
	for _, arg := range []any{long, []byte(long), errors.New(long)} {
		text := Errorf(InvalidArg, "%s", arg).Message
		if len(text) > MaxEcho || len(text) < MaxEcho-8 || !utf8.ValidString(text) || !strings.HasSuffix(text, "ä…") {
			t.Errorf("%T of %d bytes: the error has %d bytes", arg, len(long), len(text))
		}
	}
	if text := Errorf(InvalidArg, "in: %s", Errorf(Internal, "%s%s", long, long)).Message; len(text) < MaxEcho {
		t.Errorf("an Error in an Error: %d bytes, want all of it", len(text))
	}
	if text := Errorf(InvalidArg, "%s %d %v", "short", 5, nil).Message; text != "short 5 <nil>" {
		t.Errorf("got %q", text)
	}
}
