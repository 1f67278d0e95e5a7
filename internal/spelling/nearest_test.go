package spelling_test

import (
	"testing"

	"github.com/nereid-serving/nereid/internal/spelling"
	"github.com/nereid-serving/nereid/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestNearest(t *testing.T) {
	flags := []string{"model-repository", "http-port", "https-port", "grpc-port", "log-verbose", "help"}
	for _, c := range []struct {
		word  string
		known []string
		want  string
	}{
		{"pyton", []string{"native", "python"}, "python"},
		{"Python", []string{"python"}, "python"},
		{"pyhton", []string{"python"}, "python"},
		{"onnxruntime", []string{"python"}, ""},
		{"nonesuch", []string{"python"}, ""},
		{"model-repo", flags, ""},
		{"model-repositry", flags, "model-repository"},
		{"model_repository", flags, "model-repository"},
		{"htp-port", flags, "http-port"},
		{"maxBatchSize", []string{"max_batch_size", "batch_input"}, "max_batch_size"},
		{"x", flags, ""},
		{"", flags, ""},
		{"a", []string{"b"}, ""},
	} {
		if got := spelling.Nearest(c.word, c.known); got != c.want {
			t.Errorf("Nearest(%q): got %q, want %q", c.word, got, c.want)
		}
	}
}
