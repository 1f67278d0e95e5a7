package stacked

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit/transcript"
)

// TestTranscripts plays testdata. Tensors look like X[2,1]=1,2 and X[1]='text'; without values,
// their elements are 0.
//
//	config …             adds to the model's configuration
//	share X[1,2] X[1,3]  shows the batches of requests with one input each, or "-" without inputs
//	ask X[1,2] Y[1]      a request; outputs=A,B names the outputs that it wants
//	run                  executes the requests as one batch and shows the model's inputs
//	answer A[1]=1        the model's response; shows the clients' responses
func TestTranscripts(t *testing.T) {
	transcript.Play(t, "testdata/*.txt", func(t *testing.T) func(string) []string {
		s := &scripted{t: t}
		return s.step
	})
}

// scripted is a stacked instance that gets its requests from a script.
type scripted struct {
	t        *testing.T
	config   string
	requests []*infer.Request
	fixture  *fixture
	batch    *batch
}

func (s *scripted) step(line string) []string {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "config":
		s.config += rest + "\n"
	case "share":
		return s.share(rest)
	case "ask":
		s.requests = append(s.requests, s.request(rest))
	case "run":
		s.fixture = newFixture(s.t, s.config, nil)
		s.batch = s.fixture.run(s.requests...)
		s.requests = nil
		if len(s.fixture.model.got) == 1 {
			return []string{"the model gets " + tensorsText(s.fixture.model.got[0].Inputs)}
		}
		if reports := s.batch.reports; len(reports) != 1 || reports[0].Err == nil || reports[0].Executed {
			s.t.Errorf("got reports %+v, want one of a failure", reports)
		}
		return s.responses()
	case "answer":
		outputs := s.request(rest).Inputs
		for i := range outputs {
			outputs[i].Memory = s.fixture.ledger.lend("output " + outputs[i].Name)
		}
		s.fixture.model.open[0].Send(&infer.Response{Final: true, Outputs: outputs, Parameters: []infer.Parameter{{Name: "p"}}})
		return s.responses()
	default:
		s.t.Fatalf("unknown step %q", line)
	}
	return nil
}

// share returns the requests of each batch that the strategy forms.
func (s *scripted) share(line string) (batches []string) {
	plan, err := NewPlan(ConfigOf(s.t, stackedConfig+s.config))
	if err != nil {
		s.t.Fatal(err)
	}
	strategy := plan.Strategy(nil)
	var include func(*infer.Request) bool
	for text := range strings.FieldsSeq(line) {
		request := s.request(text)
		if include != nil && include(request) {
			batches[len(batches)-1] += " + " + text
			continue
		}
		include = strategy.Begin()
		include(request) // the first request of a batch is always in it
		batches = append(batches, text)
	}
	return batches
}

// responses returns the responses of the batch, of which nothing may be left.
func (s *scripted) responses() (list []string) {
	for i, a := range s.batch.tasks {
		for _, r := range a.responses {
			if r.Err != nil {
				list = append(list, fmt.Sprintf("%d fails: %s", i, r.Err.Status()))
			} else {
				list = append(list, fmt.Sprintf("%d gets %s", i, tensorsText(r.Outputs)))
			}
			if !r.Final || r.Err == nil && len(r.Parameters) != 1 {
				s.t.Errorf("request %d got a response with final flag %v and parameters %v", i, r.Final, r.Parameters)
			}
		}
	}
	s.fixture.release(s.batch)
	return list
}

func (s *scripted) request(line string) *infer.Request {
	r := &infer.Request{Model: "m", BatchSize: 1}
	for field := range strings.FieldsSeq(line) {
		if outputs, wanted := strings.CutPrefix(field, "outputs="); wanted {
			r.Outputs = strings.Split(outputs, ",")
		} else if field != "-" {
			r.Inputs = append(r.Inputs, s.tensor(field))
		}
	}
	if len(r.Inputs) > 0 && len(r.Inputs[0].Shape) > 0 {
		r.BatchSize = r.Inputs[0].Shape[0]
	}
	return r
}

func (s *scripted) tensor(text string) infer.Tensor {
	s.t.Helper()
	text, values, valued := strings.Cut(text, "=")
	name, sizes, _ := strings.Cut(strings.TrimSuffix(text, "]"), "[")
	var shape []int64
	for _, size := range strings.FieldsFunc(sizes, func(c rune) bool { return c == ',' }) {
		n, err := strconv.ParseInt(size, 10, 64)
		if err != nil {
			s.t.Fatal(err)
		}
		shape = append(shape, n)
	}
	n, _ := infer.Elements(shape)
	if quoted, isText := strings.CutPrefix(values, "'"); isText {
		if n == 0 {
			return texts(name, shape)
		}
		return texts(name, shape, strings.Split(strings.TrimSuffix(quoted, "'"), "','")...)
	}
	var numbers []int32
	if valued {
		for value := range strings.SplitSeq(values, ",") {
			n, err := strconv.ParseInt(value, 10, 32)
			if err != nil {
				s.t.Fatal(err)
			}
			numbers = append(numbers, int32(n))
		}
	} else if n < 1000 {
		numbers = make([]int32, n)
	}
	return ints(name, shape, numbers...)
}

// tensorsText is the reverse of tensor, for several tensors.
func tensorsText(tensors []infer.Tensor) string {
	list := []string{}
	for _, t := range tensors {
		text := t.Name + strings.ReplaceAll(fmt.Sprint(t.Shape), " ", ",")
		if values := elements(t); len(values) > 0 {
			text += "=" + strings.Join(values, ",")
		}
		list = append(list, text)
	}
	if len(list) == 0 {
		return "nothing"
	}
	return strings.Join(list, " ")
}

// elements returns the elements of a tensor as text.
func elements(t infer.Tensor) (list []string) {
	for data := t.Data; len(data) >= 4; {
		word := binary.LittleEndian.Uint32(data)
		data = data[4:]
		switch t.DataType {
		case infer.Bytes:
			list = append(list, "'"+string(data[:word])+"'")
			data = data[word:]
		case infer.FP32:
			list = append(list, fmt.Sprintf("%.1f", math.Float32frombits(word)))
		default:
			list = append(list, strconv.Itoa(int(int32(word))))
		}
	}
	return list
}
