package stateful

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/nereid-serving/nereid/kserve"
)

// have returns the numbers of the sequences with a state.
func (s *states) have() (numbers []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.of {
		numbers = append(numbers, k.number)
	}
	slices.Sort(numbers)
	return numbers
}

func (s *states) use(t *testing.T, number uint64, start bool) *state {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	found, err := s.takeLocked(key{number: number}, start, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestIdleStatesAreFreedByTime checks that idle states are freed although no request arrives, and
// states in use are kept.
func TestIdleStatesAreFreedByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStates(4, 3, time.Second)
		s.use(t, 1, true)
		time.Sleep(600 * time.Millisecond)
		s.use(t, 2, true)
		s.use(t, 3, true)
		time.Sleep(600 * time.Millisecond)
		if got := s.have(); !slices.Equal(got, []uint64{2, 3}) {
			t.Errorf("got states of %v after 1.2 s, want those of 2 and 3", got)
		}
		s.use(t, 3, false)
		time.Sleep(600 * time.Millisecond)
		if got := s.have(); !slices.Equal(got, []uint64{3}) {
			t.Errorf("got states of %v after 1.8 s, want that of 3", got)
		}
		time.Sleep(600 * time.Millisecond)
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.of) != 0 || s.free != nil || s.timer != nil {
			t.Errorf("got %d states, free ones %v and timer %v, want nothing left", len(s.of), s.free, s.timer)
		}
		if _, err := s.takeLocked(key{number: 3}, false, time.Now()); err == nil {
			t.Error("a sequence goes on without its state")
		}
	})
}

// TestStatesAreFreedWithTheirInstance checks that close frees all states. testing/synctest would
// wait for a timer left behind.
func TestStatesAreFreedWithTheirInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStates(4, 3, time.Hour)
		s.use(t, 1, true)
		s.close()
		if got := s.have(); len(got) != 0 {
			t.Errorf("got states of %v, want none", got)
		}
	})
}

// TestControlsAreReadByTheirValues checks controls of each type, including false values other than
// zero.
func TestControlsAreReadByTheirValues(t *testing.T) {
	for _, test := range []struct {
		config                string
		unset, wanted, others []byte
	}{
		{"int32_false_true: [ 0, 1 ]", []byte{0, 0, 0, 0}, []byte{1, 0, 0, 0}, []byte{2, 0, 0, 0}},
		{"int32_false_true: [ 1, 0 ]", []byte{1, 0, 0, 0}, []byte{0, 0, 0, 0}, []byte{0}},
		{"int32_false_true: [ -1, 7 ]", []byte{255, 255, 255, 255}, []byte{7, 0, 0, 0}, []byte{0, 0, 0, 0}},
		{"fp32_false_true: [ 1, 2 ]", []byte{0, 0, 0x80, 0x3f}, []byte{0, 0, 0, 0x40}, []byte{0, 0, 0, 0}},
		{"bool_false_true: [ false, true ]", []byte{0}, []byte{1}, nil},
	} {
		parsed := &kserve.ModelSequenceBatching_Control{}
		if err := prototext.Unmarshal([]byte(test.config), parsed); err != nil {
			t.Fatal(err)
		}
		c, err := controlOf("S", parsed)
		if err != nil {
			t.Fatal(err)
		}
		if set, err := c.is(test.unset); set || err != nil {
			t.Errorf("%s: %x: got %v, error %v, want false", test.config, test.unset, set, err)
		}
		if set, err := c.is(test.wanted); !set || err != nil {
			t.Errorf("%s: %x: got %v, error %v, want true", test.config, test.wanted, set, err)
		}
		if _, err := c.is(test.others); err == nil {
			t.Errorf("%s: %x: got no error", test.config, test.others)
		}
	}
	if _, err := controlOf("S", &kserve.ModelSequenceBatching_Control{}); err == nil {
		t.Error("a control without values: got no error")
	}
}

// TestLayersHaveAStateEach runs two sequences for two steps through two layers whose weights make
// the outputs easy to predict.
func TestLayersHaveAStateEach(t *testing.T) {
	const first = `{"in_state": "A", "out_state": "B", "input_weights": [[1], [2]], "state_weights": [[1, 0], [0, 1]], "bias": [0, 0]}`
	const second = `{"in_state": "C", "out_state": "D", "input_weights": [[0, 1]], "state_weights": [[0.5]], "bias": [0.25]}`
	c, err := loadCell(cellFile(t, `{"layers": [`+first+`, `+second+`]}`))
	if err != nil {
		t.Fatal(err)
	}
	if c.inputs() != 1 || c.outputs() != 1 || c.states() != 3 {
		t.Fatalf("got %d inputs, %d outputs and states of %d, want 1, 1 and 3", c.inputs(), c.outputs(), c.states())
	}
	tanh := func(x float32) float32 { return float32(math.Tanh(float64(x))) }
	inputs := []float32{0.5, -1}
	states, next, want := make([]float32, 6), make([]float32, 6), make([]float32, 6)
	for step := range 2 {
		for row, x := range inputs {
			w := want[3*row : 3*row+3]
			w[0], w[1] = tanh(x+w[0]), tanh(2*x+w[1])
			w[2] = tanh(0.25 + w[1] + 0.5*w[2])
		}
		c.step(inputs, states, next)
		copy(states, next)
		for i := range want {
			if math.Abs(float64(states[i]-want[i])) > 1e-6 {
				t.Errorf("step %d: got states %v, want %v", step, states, want)
				break
			}
		}
	}
	if _, err := loadCell(cellFile(t, `{"layers": [`+second+`, `+second+`]}`)); err == nil || !strings.Contains(err.Error(), "the layer of C has 2 inputs, want 1") {
		t.Errorf("layers that do not fit: got error %v", err)
	}
}

func cellFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cell.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
