package openai

import (
	"net/http"

	"github.com/nereid-serving/nereid/server/jsontext"
)

// toolUse is what a client says of tools.
type toolUse struct{}

func (t *toolUse) read(f *fields) {
	f.field("tools")
	f.field("tool_choice")
}

// checkChat refuses what is not served, in Triton's order.
func (g *generation) checkChat(*sampling, *toolUse, bool, bool, jsontext.Value) error {
	return &refusal{status: http.StatusInternalServerError, text: "Unknown tokenizer"}
}

func (g *generation) addChat(jsontext.Value, *toolUse, *sampling, int64) error { return nil }
