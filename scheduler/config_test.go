package scheduler

import (
	"testing"

	"github.com/nereid-serving/nereid/kserve"
	"google.golang.org/protobuf/encoding/prototext"
)

// parseConfig reads a config as a test writes it.
func parseConfig(t *testing.T, text string) *kserve.ModelConfig {
	t.Helper()
	config := &kserve.ModelConfig{}
	if err := prototext.Unmarshal([]byte(text), config); err != nil {
		t.Fatalf("config %q: %v", text, err)
	}
	return config
}
