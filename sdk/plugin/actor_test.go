package plugin_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/sdk"
)

// actor is the backend of these tests' processes. A model's name selects its behaviour.
type actor struct{ env *sdk.BackendEnv }

type actorModel struct {
	env     *sdk.ModelEnv
	counter sdk.Metric
}

type actorInstance struct {
	env   *sdk.InstanceEnv
	model *actorModel
	later chan struct{} // closed when the later goroutine has ended
	seen  int           // requests of the model "again"

	derived []context.Context // derived from request contexts
}

func newActor(env *sdk.BackendEnv) (sdk.Backend, error) {
	if env.Settings["refuse"] != "" {
		return nil, sdk.Errorf(sdk.Unavailable, "not today: %s", env.Settings["refuse"])
	}
	return &actor{env}, nil
}

func (a *actor) Attributes() sdk.Attributes { return sdk.Attributes{} }
func (a *actor) Close()                     { fmt.Println("backend closed") }

func (a *actor) NewModel(env *sdk.ModelEnv) (sdk.Model, error) {
	m := &actorModel{env: env}
	switch env.Name {
	case "refuses":
		return nil, errors.New("the model is refused")
	case "completes":
		if env.AutoComplete {
			config := proto.Clone(env.Config()).(*kserve.ModelConfig)
			config.Output = append(config.Output, &kserve.ModelOutput{Name: "MORE", DataType: kserve.DataType_TYPE_UINT8, Dims: []int64{-1}})
			return m, env.SetConfig(config)
		}
	case "measures":
		env.ReportMemory(5 << 40)
		family, err := env.Metrics.NewFamily(sdk.Counter, "actor_total", "What the actor has done.")
		if err != nil {
			return nil, err
		}
		if m.counter, err = family.NewMetric(map[string]string{"of": "tests"}); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *actorModel) Close() { fmt.Println("model closed") }

func (m *actorModel) NewInstance(env *sdk.InstanceEnv) (sdk.Instance, error) {
	env.Log.Info("instance is made", "kind", env.Kind)
	in := &actorInstance{env: env, model: m, later: make(chan struct{})}
	close(in.later)
	if m.env.Name == "asks" {
		return &askedInstance{in}, nil
	}
	return in, nil
}

// askedInstance is an instance that reports that it is not ready.
type askedInstance struct{ *actorInstance }

// Ready implements sdk.Readier.
func (in *askedInstance) Ready(context.Context) error {
	return errors.New("the actor has stage fright")
}

func (in *actorInstance) Close() {
	<-in.later
	fmt.Println("instance closed")
}

func (in *actorInstance) Execute(ctx context.Context, requests []*sdk.Request) error {
	switch in.model.env.Name {
	case "drops":
		return nil
	case "fails":
		return sdk.Errorf(sdk.InvalidArg, "no %d requests today", len(requests))
	case "panics":
		panic("stage fright")
	case "later":
		in.later = make(chan struct{})
		go func(requests []*sdk.Request, over chan struct{}) {
			defer close(over)
			for _, r := range slices.Backward(requests) {
				in.answer(ctx, r)
			}
		}(slices.Clone(requests), in.later)
		return nil
	}
	for _, r := range requests {
		in.answer(ctx, r)
	}
	return nil
}

// answer responds to a request and releases it.
func (in *actorInstance) answer(ctx context.Context, r *sdk.Request) {
	err := in.respond(ctx, r)
	switch in.model.env.Name {
	case "lingers":
		in.awaitGo()
	case "releases-later":
		in.later = make(chan struct{})
		go func() {
			defer close(in.later)
			in.awaitGo()
			_ = r.Release(sdk.ReleaseAll)
		}()
		return
	}
	if in.model.env.Name == "again" && in.seen%2 == 1 {
		return // already released
	}
	if err != nil {
		if p, wrong := r.NewResponse(); wrong == nil {
			_ = p.Send(sdk.SendFinal, err)
		}
	}
	_ = r.Release(sdk.ReleaseAll)
}

// awaitGo waits for the test to create a file in the model's directory.
func (in *actorInstance) awaitGo() {
	for {
		if _, err := os.Stat(filepath.Join(in.model.env.Directory, "go")); err == nil {
			return
		}
		time.Sleep(time.Millisecond) // part of the author's code, not a wait of the test
	}
}

func (in *actorInstance) respond(ctx context.Context, r *sdk.Request) error {
	input, err := r.InputAt(0)
	if err != nil {
		return err
	}
	name := "OUT" + strings.TrimPrefix(input.Name(), "IN")
	p, err := r.NewResponse()
	if err != nil {
		return err
	}
	switch in.model.env.Name {
	case "identity", "later", "asks", "completes", "lingers", "releases-later":
		if err := p.Forward(name, nil, input); err != nil {
			return err
		}
	case "copies", "writes":
		if in.model.env.Name == "writes" {
			for i := range input.Data() {
				input.Data()[i]++
			}
		}
		out, err := p.Output(name, input.DataType(), input.Shape())
		if err != nil {
			return err
		}
		copy(out, input.Data())
	case "describes":
		correlation, _ := r.CorrelationNumber()
		text, _ := r.CorrelationText()
		trace, traced := r.Trace()
		said := fmt.Sprintf("%q %d %q %#x %d %d %v %v %v %v", r.ID(), correlation, text, r.Flags(), r.TimeoutMicros(), r.Priority(),
			r.Parameters(), r.Outputs(), trace, traced)
		p.Discard()
		if p, err = r.NewResponse(); err != nil {
			return err
		}
		out, err := p.Output(name, sdk.Uint8, []int64{1, int64(len(said))})
		if err != nil {
			return err
		}
		copy(out, said)
		if err := errors.Join(p.SetParameter("text", "ä\x01"), p.SetParameter("number", 5), p.SetParameter("yes", true)); err != nil {
			return err
		}
	case "waits":
		p.Discard()
		fmt.Println("waiting")
		<-r.Context().Done()
		return sdk.Errorf(sdk.Cancelled, "the client has gone: %v", r.Cancelled())
	case "derives":
		p.Discard()
		derived, cancel := context.WithCancel(r.Context())
		defer cancel()
		for !r.Cancelled() {
			time.Sleep(time.Millisecond) // see below
		}
		in.derived = append(in.derived, derived)
		return sdk.Errorf(sdk.Cancelled, "seen at last")
	case "after":
		p.Discard()
		// Contexts derived from an answered request have ended.
		for _, derived := range in.derived {
			<-derived.Done()
		}
		derived, cancel := context.WithCancel(r.Context())
		in.derived = append(in.derived, derived)
		context.AfterFunc(derived, cancel)
		return sdk.Errorf(sdk.Unavailable, "%d ended", len(in.derived)-1)
	case "times":
		if err := p.Forward(name, nil, input); err != nil {
			return err
		}
		now := sdk.Now()
		if err := in.env.Statistics.Batch(1, sdk.Times{ExecStart: now, ComputeStart: now + 1, ComputeEnd: now + 4, ExecEnd: now + 9}); err != nil {
			return err
		}
	case "acts":
		if err := errors.Join(r.TraceActivity("äct_START", 1), r.TraceActivity("äct_END", 0), p.Forward(name, nil, input)); err != nil {
			return err
		}
	case "polls":
		p.Discard()
		for !r.Cancelled() {
			time.Sleep(time.Millisecond) // part of the author's code, not a wait of the test
		}
		return sdk.Errorf(sdk.Cancelled, "seen at last")
	case "again":
		if in.seen++; in.seen%2 == 1 {
			p.Discard()
			return r.Release(sdk.ReleaseReschedule)
		}
		if err := p.Forward(name, nil, input); err != nil {
			return err
		}
	case "exits":
		os.Exit(3)
	case "floods":
		p.Discard()
		for i := range 20 {
			p, err := r.NewResponse()
			if err != nil {
				return err
			}
			out, err := p.Output(name, sdk.Uint8, []int64{1, 1 << 20})
			if err != nil {
				return err
			}
			for j := range out {
				out[j] = byte(i)
			}
			if err := p.Send(0, nil); err != nil {
				return err
			}
		}
		return r.Factory().SendFlags(sdk.SendFinal)
	case "repeats":
		p.Discard()
		return in.repeat(r, input, name)
	case "measures":
		if err := in.model.counter.Increment(2); err != nil {
			return err
		}
		value, err := in.model.counter.Value()
		if err != nil {
			return err
		}
		out, err := p.Output(name, sdk.Uint8, []int64{1, 1})
		if err != nil {
			return err
		}
		out[0] = byte(value)
	case "calls", "gathers", "streams":
		return in.call(ctx, r, p, input, name)
	case "asks-server":
		server := in.model.env.Server
		decoupled, err := server.Decoupled("other", 0)
		ready, wrong := server.ModelReady(ctx, "other", 3)
		p.Discard()
		code := func(err error) sdk.Code {
			var coded *sdk.Error
			if !errors.As(err, &coded) {
				return sdk.Internal
			}
			return coded.Code
		}
		_, unknown := server.ModelReady(ctx, "nobody", sdk.LatestVersion)
		loaded := server.Load(ctx, "other", "", nil)
		unloaded := server.Unload(ctx, "other", false)
		return sdk.Errorf(sdk.Unsupported, "decoupled %v %v, ready %v %v, unknown %v %v, load %v %v, unload %v %v", decoupled, err, ready, wrong,
			code(unknown), unknown, code(loaded), loaded, code(unloaded), unloaded)
	case "counts":
		if err := p.Forward(name, nil, input); err != nil {
			return err
		}
		now := sdk.Now()
		if err := in.env.Statistics.Request(r, input.Data()[0] == 0, sdk.Times{ExecStart: now, ComputeStart: now, ComputeEnd: now, ExecEnd: now}); err != nil {
			return err
		}
		if input.Data()[0] == 2 { // the client gets an error, but the request is reported as successful
			return p.Send(sdk.SendFinal, sdk.Errorf(sdk.InvalidArg, "no 2"))
		}
	}
	return p.Send(sdk.SendFinal, nil)
}

// repeat sends as many responses as the input says, then the final flag.
func (in *actorInstance) repeat(r *sdk.Request, input *sdk.Input, name string) error {
	factory := r.Factory()
	defer factory.Close()
	for i := range binary.LittleEndian.Uint32(input.Data()) {
		p, err := factory.NewResponse()
		if err != nil {
			return err
		}
		out, err := p.Output(name, sdk.Uint8, []int64{1, 4})
		if err != nil {
			return err
		}
		binary.LittleEndian.PutUint32(out, i)
		if err := p.Send(0, nil); err != nil {
			return err
		}
	}
	return factory.SendFlags(sdk.SendFinal)
}

// call sends the input to another model, once or several times, and returns the last response's
// bytes.
func (in *actorInstance) call(ctx context.Context, r *sdk.Request, p *sdk.Response, input *sdk.Input, name string) error {
	server := in.model.env.Server
	q := func() *sdk.InferRequest {
		return &sdk.InferRequest{Model: "other", ID: "of " + r.ID(), Inputs: []sdk.Tensor{{Name: "ELSE", Of: input}}, Outputs: []string{"ANSWER"}, Priority: 2, From: r}
	}
	var answer []byte
	switch in.model.env.Name {
	case "calls":
		response, err := server.Infer(ctx, q())
		if err != nil {
			return err
		}
		if response.Version != 7 {
			return sdk.Errorf(sdk.Internal, "version %d has answered, want 7", response.Version)
		}
		answer = slices.Clone(response.Outputs[0].Data)
		response.Release()
	case "gathers":
		answers := make(chan []byte, 20)
		for range cap(answers) {
			if err := server.InferAsync(ctx, q(), func(response *sdk.InferResponse) {
				answers <- slices.Clone(response.Outputs[0].Data)
				response.Release()
			}); err != nil {
				return err
			}
		}
		for range cap(answers) {
			answer = <-answers
		}
	case "streams":
		n := byte(0)
		for response, err := range server.InferStream(ctx, q()) {
			if err != nil {
				return err
			}
			n++
			answer = append([]byte{n}, response.Outputs[0].Data...)
			response.Release()
		}
	}
	out, err := p.Output(name, sdk.Uint8, []int64{1, int64(len(answer))})
	if err != nil {
		return err
	}
	copy(out, answer)
	return p.Send(sdk.SendFinal, nil)
}
