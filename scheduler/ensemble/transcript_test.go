package ensemble

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit/transcript"
)

// TestTranscripts plays testdata. A case begins with an ensemble: its inputs, its outputs and its
// steps, as ParseEnsemble reads them. An effect is a step that begins, a response to a client, or a
// new number of slots that are kept. Clients and steps that belong to a sequence name it in
// brackets.
func TestTranscripts(t *testing.T) {
	transcript.Play(t, "testdata/*.txt", func(t *testing.T) func(string) []string {
		s := &scripted{fakeComposer: newFakeComposer(t), clients: map[string]context.CancelFunc{}}
		return s.step
	})
}

// scripted is an ensemble that gets its requests from a script.
type scripted struct {
	*fakeComposer
	ensemble *Scheduler
	clients  map[string]context.CancelFunc
	shown    int // number of slots, as last shown
}

// step runs a line:
//
//	ensemble A B | C | m(IN=A)->OUT=X | …   max_inflight=2 may come before the first step
//	ask A=1                                 also outputs=C,D id=x sequence=5 start end
//	m: OUT=1.                               as fakeComposer.answer; "second m: …" answers its second request
//	gone x                                  the client disconnects; without a name it is q
//	refuse m, missing m                     the model rejects requests, or does not exist
//	wait 5s
func (s *scripted) step(line string) []string {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "ensemble":
		s.start(rest)
	case "ask":
		s.request(rest)
	case "gone":
		s.clients[rest]()
	case "refuse":
		s.refuse[rest] = errFull
	case "missing":
		s.missing = rest
	case "wait":
		duration, err := time.ParseDuration(rest)
		if err != nil {
			s.t.Fatal(err)
		}
		time.Sleep(duration)
	case "second":
		model, text, _ := strings.Cut(rest, ": ")
		first := s.take(model)
		s.answer(model, text)
		s.calls = append([]*stepCall{first}, s.calls...)
	default:
		s.answer(strings.TrimSuffix(word, ":"), rest)
	}
	synctest.Wait()
	return s.effects()
}

// start creates the ensemble, which must have nothing left when the case ends.
func (s *scripted) start(line string) {
	parts := strings.Split(line, " | ")
	steps := parts[2:]
	limit, limited := strings.CutPrefix(steps[0], "max_inflight=")
	if limited {
		steps = steps[1:]
	}
	config := ParseEnsemble(parts[0], parts[1], steps...)
	config.MaxInflight, _ = strconv.Atoi(limit)
	config.Composer, config.Observer = s.fakeComposer, &CountingObserver{}
	s.ensemble = New(config)
	s.t.Cleanup(func() { s.settled(s.ensemble) })
}

// request sends a request.
func (s *scripted) request(line string) {
	request := &infer.Request{Model: "e", ID: "q"}
	for field := range strings.FieldsSeq(line) {
		name, value, _ := strings.Cut(field, "=")
		switch name {
		case "id":
			request.ID = value
		case "outputs":
			request.Outputs = strings.Split(value, ",")
		case "sequence":
			request.Correlation.Number, _ = strconv.ParseUint(value, 10, 64)
		case "start":
			request.Flags |= infer.SequenceStart
		case "end":
			request.Flags |= infer.SequenceEnd
		default:
			request.Inputs = append(request.Inputs, s.tensor(name, value))
		}
	}
	var ctx context.Context
	ctx, s.clients[request.ID] = context.WithCancel(s.t.Context())
	s.t.Cleanup(s.clients[request.ID])
	s.submit(ctx, s.ensemble, request)
}

// effects returns the changes since its last call.
func (s *scripted) effects() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.events
	s.events = nil
	if s.slots != s.shown {
		s.shown = s.slots
		list = append(list, fmt.Sprintf("slots: %d", s.slots))
	}
	return list
}

// sequenceText names a sequence and its flags, or is empty without a sequence.
func sequenceText(id infer.CorrelationID, flags uint32) string {
	if id == (infer.CorrelationID{}) {
		return ""
	}
	text := " [" + id.Text
	if id.Text == "" {
		text += strconv.FormatUint(id.Number, 10)
	}
	if flags&infer.SequenceStart != 0 {
		text += " start"
	}
	if flags&infer.SequenceEnd != 0 {
		text += " end"
	}
	return text + "]"
}

// sequenceOf returns the sequence that a response names in its parameters.
func sequenceOf(r *infer.Response) string {
	var id infer.CorrelationID
	var flags uint32
	for _, p := range r.Parameters {
		switch {
		case p.Name == parameterSequence:
			id = infer.CorrelationID{Text: p.String, Number: uint64(p.Int)}
		case p.Name == parameterStart && p.Bool:
			flags |= infer.SequenceStart
		case p.Name == parameterEnd && p.Bool:
			flags |= infer.SequenceEnd
		}
	}
	return sequenceText(id, flags)
}
