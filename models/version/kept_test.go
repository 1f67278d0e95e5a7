package version_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models/version"
)

// TestLabelsAndStatesAreCharged loads a model whose config names a large label file and a large
// state. Both are charged until the model is closed, and a load without room for them fails.
func TestLabelsAndStatesAreCharged(t *testing.T) {
	const labels = 1 << 20
	for _, c := range []struct {
		name   string
		state  int // bytes
		refuse string
	}{
		{"room", 1 << 20, ""},
		{"no room", 32 << 20, "request needs 33554432 bytes of memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			account := budget.New(budget.Config{Limit: 64 << 20})
			root := writeModel(t, `output [ { name: "CLASS" data_type: TYPE_FP32 dims: [ 1 ] label_filename: "labels.txt" } ]
				sequence_batching { state [ { input_name: "S" output_name: "T" data_type: TYPE_INT8 dims: [ `+strconv.Itoa(c.state)+` ] } ] }`)
			testkit.WriteFiles(t, root, map[string]string{"m/labels.txt": strings.Repeat("\n", labels)})
			s := newShelf(t, root, &echoes{}, func(s *version.Settings) { s.Memory = account })
			v, err := s.load("m")
			if c.refuse != "" {
				if err == nil || !strings.HasPrefix(infer.AsError(err).Message, c.refuse) {
					t.Errorf("got the error %v, want %q", err, c.refuse)
				}
			} else {
				if err != nil {
					t.Fatal(err)
				}
				if n := len(v.Info().Labels["CLASS"]); n != labels {
					t.Errorf("got %d labels, want %d", n, labels)
				}
				if got, want := account.Used(budget.Bodies), int64(17*labels); got != want {
					t.Errorf("%d bytes are charged for labels, want %d", got, want)
				}
				if got, want := account.Used(budget.States), int64(c.state); got != want {
					t.Errorf("%d bytes are charged for states, want %d", got, want)
				}
				s.close("m")
			}
			if n := account.Total(); n != 0 {
				t.Errorf("%d bytes stay charged", n)
			}
		})
	}
}
