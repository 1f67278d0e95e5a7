package infer_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/nereid-serving/nereid/infer"
)

// TestErrorsRepeatNoLargeTexts checks that Errorf truncates long arguments of any type, but not the
// message of another Error.
func TestErrorsRepeatNoLargeTexts(t *testing.T) {
	long := strings.Repeat("ä", infer.MaxEcho)
	for _, arg := range []any{long, []byte(long), errors.New(long)} {
		text := infer.Errorf(infer.InvalidArg, "%s", arg).Message
		if len(text) > infer.MaxEcho || len(text) < infer.MaxEcho-8 || !utf8.ValidString(text) || !strings.HasSuffix(text, "ä…") {
			t.Errorf("%T of %d bytes: the error has %d bytes", arg, len(long), len(text))
		}
	}
	if text := infer.Errorf(infer.InvalidArg, "in: %s", infer.Errorf(infer.Internal, "%s%s", long, long)).Message; len(text) < infer.MaxEcho {
		t.Errorf("an Error in an Error: %d bytes, want all of it", len(text))
	}
	full := &infer.Error{Code: infer.Unavailable, NoRoom: true, Message: "full"}
	for _, arg := range []error{full, fmt.Errorf("read: %w", full)} {
		if got := infer.Errorf(infer.InvalidArg, "the body is no JSON: %v", arg); got != full {
			t.Errorf("a lack of memory: got %v %q, want that error alone", got.Code, got)
		}
		if got := infer.Errorf(infer.Unavailable, "the batch: %v", arg); !got.NoRoom || got.Message != "the batch: "+arg.Error() {
			t.Errorf("a lack of memory, with more text: got %+v", got)
		}
	}
	if text := infer.Errorf(infer.InvalidArg, "%s %d %v", "short", 5, nil).Message; text != "short 5 <nil>" {
		t.Errorf("got %q", text)
	}
}
