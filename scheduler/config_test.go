package scheduler_test

import (
	"strconv"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/scheduler/batching"
)

// parseConfig parses the text of a config.
func parseConfig(t testing.TB, text string) *kserve.ModelConfig {
	t.Helper()
	config := &kserve.ModelConfig{}
	if err := prototext.Unmarshal([]byte(text), config); err != nil {
		t.Fatalf("config %q: %v", text, err)
	}
	return config
}

// bounded is a strategy that limits the bytes of a batch.
type bounded struct {
	batching.Strategy
	bytes int
}

func bytesAtMost(n int) bounded {
	s, err := batching.Volume(&kserve.ModelConfig{Parameters: map[string]*kserve.ModelParameter{batching.VolumeParameter: {StringValue: strconv.Itoa(n)}}})
	if err != nil {
		panic(err)
	}
	return bounded{s, n}
}
