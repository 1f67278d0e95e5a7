// Command many is a test backend. The parameter "does" selects the behavior of each model.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"google.golang.org/protobuf/proto"

	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/sdk"
	"github.com/nereid-serving/nereid/sdk/plugin"
)

func main() { plugin.Serve(open) }

type backend struct {
	env   *sdk.BackendEnv
	panic string // the hook that panics, from --backend-config
	exit  string // the hook that ends its goroutine
}

func open(env *sdk.BackendEnv) (sdk.Backend, error) {
	b := &backend{env, env.Settings["panic"], env.Settings["exit"]}
	b.maybe("New")
	return b, nil
}

// maybe panics, or exits its goroutine, if the settings name this hook.
func (b *backend) maybe(hook string) {
	if b.panic == hook {
		panic("as the settings say")
	}
	if b.exit == hook {
		runtime.Goexit()
	}
}

func (b *backend) Attributes() sdk.Attributes {
	b.maybe("Attributes")
	return sdk.Attributes{}
}

func (b *backend) Close() {
	fmt.Fprintln(os.Stderr, b.env.Name+" is closed")
	b.maybe("Backend.Close")
}

type model struct {
	*backend
	env  *sdk.ModelEnv
	does string
	late *sdk.ResponseFactory // of a request that the instance has abandoned
}

func (b *backend) NewModel(env *sdk.ModelEnv) (sdk.Model, error) {
	b.maybe("NewModel")
	m := &model{backend: b, env: env, does: env.Config().GetParameters()["does"].GetStringValue()}
	if env.AutoComplete && len(env.Config().GetInput()) == 0 {
		c := proto.Clone(env.Config()).(*kserve.ModelConfig)
		c.Input = []*kserve.ModelInput{{Name: "INPUT0", DataType: kserve.DataType_TYPE_INT32, Dims: []int64{1}}}
		c.Output = []*kserve.ModelOutput{{Name: "OUTPUT0", DataType: kserve.DataType_TYPE_INT32, Dims: []int64{1}}}
		if err := env.SetConfig(c); err != nil {
			return nil, err
		}
	}
	if change := nonsense[m.does]; change != nil && env.AutoComplete {
		c := proto.Clone(env.Config()).(*kserve.ModelConfig)
		change(c)
		if err := env.SetConfig(c); err != nil {
			return nil, err
		}
	}
	if m.does == "refuse" {
		return nil, sdk.Errorf(sdk.InvalidArg, "model '%s' is refused by its backend", env.Name)
	}
	return m, nil
}

// nonsense are invalid completions of a config.
var nonsense = map[string]func(*kserve.ModelConfig){
	"negative dims": func(c *kserve.ModelConfig) { c.Input[0].Dims = []int64{-7, math.MinInt64} },
	"no dims":       func(c *kserve.ModelConfig) { c.Output[0].Dims = nil },
	"huge dims":     func(c *kserve.ModelConfig) { c.Input[0].Dims = []int64{math.MaxInt64, math.MaxInt64} },
	"no name":       func(c *kserve.ModelConfig) { c.Output[0].Name = "" },
	"no UTF-8":      func(c *kserve.ModelConfig) { c.Output[0].Name = "\xff" },
	"no type":       func(c *kserve.ModelConfig) { c.Input[0].DataType = 77 },
	"no batch":      func(c *kserve.ModelConfig) { c.MaxBatchSize = math.MinInt32 },
	"equal names":   func(c *kserve.ModelConfig) { c.Input = append(c.Input, c.Input[0]) },
	"a long name":   func(c *kserve.ModelConfig) { c.Output[0].Name = strings.Repeat("x", 3<<20) },
	"many outputs": func(c *kserve.ModelConfig) {
		for i := range 100_000 {
			c.Output = append(c.Output, &kserve.ModelOutput{Name: fmt.Sprint("O", i), DataType: kserve.DataType_TYPE_INT32, Dims: []int64{1}})
		}
	},
}

func (m *model) Close() {
	if m.does == "answer after Close" && m.late != nil {
		r, err := m.late.NewResponse()
		if err == nil {
			err = r.Send(sdk.SendFinal, nil)
		}
		fmt.Fprintln(os.Stderr, "too late:", err)
	}
	m.maybe("Model.Close")
}

type instance struct {
	*model
	env   *sdk.InstanceEnv
	sums  map[uint64]int32
	kept  []*sdk.Request
	final *sdk.ResponseFactory
}

func (m *model) NewInstance(env *sdk.InstanceEnv) (sdk.Instance, error) {
	m.maybe("NewInstance")
	if m.does == "where" {
		fmt.Fprintf(os.Stderr, "%s is %s %d, policy %s, profiles %v\n", env.Name, env.Kind, env.Device, env.HostPolicy, env.Profiles)
	}
	return &instance{model: m, env: env, sums: make(map[uint64]int32)}, nil
}

func (in *instance) Close() {
	in.late = in.final
	m := in.model
	if m.does == "never close" {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		select {}
	}
	m.maybe("Instance.Close")
}

// Ready implements sdk.Readier.
func (in *instance) Ready(context.Context) error {
	in.maybe("Ready")
	return nil
}

// fault is the value of INPUT0 that triggers a model's fault.
const fault = 13

func (in *instance) Execute(ctx context.Context, requests []*sdk.Request) error {
	switch in.does {
	case "batch":
		return in.batch(requests)
	case "repeat":
		return in.repeat(requests)
	}
	for i, r := range requests {
		value, err := input(r)
		if err == nil && value == fault {
			if done, err := in.fail(requests[i:]); done {
				return err
			}
			continue
		}
		if err == nil {
			value, err = in.answer(ctx, r, value)
		}
		if err := respond(r, value, err); err != nil {
			return err
		}
	}
	return nil
}

// answer computes a model's answer.
func (in *instance) answer(ctx context.Context, r *sdk.Request, value int32) (int32, error) {
	switch in.does {
	case "sum":
		id, err := r.CorrelationNumber()
		if err != nil {
			return 0, err
		}
		if r.Flags()&sdk.SequenceStart != 0 {
			in.sums[id] = 0
		}
		in.sums[id] += value
		return in.sums[id], nil
	case "call":
		return in.call(ctx, r, value)
	case "pid":
		return int32(os.Getpid()), nil
	case "settings":
		fmt.Fprintf(os.Stderr, "settings of %s: own=%s batch=%s %s\n", in.backend.env.Name, in.backend.env.Settings["own"],
			in.backend.env.Settings["default-max-batch-size"], in.backend.env.Message)
	}
	return value + 1, nil
}

// call calls the model that parameter "callee" names.
func (in *instance) call(ctx context.Context, r *sdk.Request, value int32) (int32, error) {
	callee := in.model.env.Config().GetParameters()["callee"].GetStringValue()
	ready, err := in.model.env.Server.ModelReady(ctx, callee, sdk.LatestVersion)
	if err != nil || !ready {
		return 0, sdk.Errorf(sdk.Unavailable, "callee '%s' is not ready: %v", callee, err)
	}
	passed, err := r.Input("INPUT0")
	if err != nil {
		return 0, err
	}
	response, err := in.model.env.Server.Infer(ctx, &sdk.InferRequest{Model: callee, Inputs: []sdk.Tensor{{Name: "INPUT0", Of: passed}}})
	if err != nil {
		return 0, err
	}
	defer response.Release()
	out := response.Output("OUTPUT0")
	if out == nil {
		return 0, sdk.Errorf(sdk.Internal, "callee '%s' has no OUTPUT0", callee)
	}
	return 100 * int32(binary.LittleEndian.Uint32(out.Data)), nil
}

// fail applies the fault to the first of the requests. If done is true, Execute must not touch the
// requests any more.
func (in *instance) fail(requests []*sdk.Request) (done bool, err error) {
	r := requests[0]
	switch in.does {
	case "panic":
		panic("as the request says")
	case "panic beside":
		go panic("in a goroutine of its own")
		select {}
	case "end the goroutine":
		runtime.Goexit()
	case "close descriptors":
		for fd := 3; fd < 1000; fd++ {
			_ = syscall.Close(fd)
		}
		select {}
	case "leave a child":
		return true, leaveChild()
	case "eat memory":
		return true, eat()
	case "print":
		_, _ = os.Stdout.Write(bytes.Repeat([]byte("1|3|unix|none|nereid\x00\xff"), 10_000))
		return false, respond(r, value0, nil)
	case "huge output":
		response, err := r.NewResponse()
		if err == nil {
			_, err = response.Output("OUTPUT0", sdk.Int32, []int64{1 << 40})
			err = response.Send(sdk.SendFinal, err)
		}
		return false, errors.Join(err, r.Release(sdk.ReleaseAll))
	case "deep output":
		response, err := r.NewResponse()
		if err == nil {
			_, err = response.Output("OUTPUT0", sdk.Int32, slices.Repeat([]int64{1}, 300))
			err = response.Send(sdk.SendFinal, err)
		}
		return false, errors.Join(err, r.Release(sdk.ReleaseAll))
	case "float parameter":
		response, err := r.NewResponse()
		if err != nil {
			return true, err
		}
		return false, errors.Join(fill(response, 0), response.SetParameter("share", 0.25), response.Send(sdk.SendFinal, nil), r.Release(sdk.ReleaseAll))
	case "use it later":
		if err := respond(r, value0, nil); err != nil {
			return true, err
		}
		go func() {
			input, err := r.Input("INPUT0")
			_, late := r.NewResponse()
			fmt.Fprintln(os.Stderr, "used later:", len(input.Data()), err, late, r.Release(sdk.ReleaseAll))
		}()
	case "nil":
		var none *model
		none.does = ""
	case "exit":
		fmt.Fprintln(os.Stderr, "last words")
		os.Exit(3)
	case "hang":
		fmt.Fprintln(os.Stderr, in.model.env.Name+" hangs")
		select {}
	case "error":
		return true, sdk.Errorf(sdk.Unavailable, "not today")
	case "send twice":
		response, err := r.NewResponse()
		if err != nil {
			return true, err
		}
		if err := errors.Join(fill(response, 0), response.Send(sdk.SendFinal, nil)); err != nil {
			return true, err
		}
		fmt.Fprintln(os.Stderr, "sent twice:", response.Send(sdk.SendFinal, nil))
		return false, r.Release(sdk.ReleaseAll)
	case "release twice":
		if err := respond(r, 0, nil); err != nil {
			return true, err
		}
		fmt.Fprintln(os.Stderr, "released twice:", r.Release(sdk.ReleaseAll))
	case "forget", "forget the release", "answer after Close":
		fmt.Fprintln(os.Stderr, in.model.env.Name+" keeps a request")
		in.kept = append(in.kept, r)
		in.final = r.Factory()
		if in.does == "forget the release" {
			response, err := in.final.NewResponse()
			if err != nil {
				return true, err
			}
			return false, errors.Join(fill(response, 0), response.Send(sdk.SendFinal, nil))
		}
	}
	return false, nil
}

const value0 = 0

// leaveChild starts a process in its own session that keeps all descriptors, and exits.
func leaveChild() error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	var files []uintptr
	for range 3 {
		files = append(files, 2)
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			if _, err := os.Stat("/proc/self/fd/" + e.Name()); err == nil { // the descriptor of the directory has been closed
				files = append(files, uintptr(fd))
			}
		}
	}
	_, err = syscall.ForkExec("/bin/sleep", []string{"sleep", "600"}, &syscall.ProcAttr{Env: os.Environ(), Files: files, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		return err
	}
	os.Exit(4)
	return nil
}

// eat allocates memory until there is no more: 256 MiB more than there is.
func eat() error {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return err
	}
	var pages uint64
	if _, err := fmt.Sscan(string(text), &pages); err != nil {
		return err
	}
	limit := syscall.Rlimit{Cur: pages*uint64(os.Getpagesize()) + 256<<20, Max: math.MaxUint64}
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &limit); err != nil {
		return err
	}
	var eaten [][]byte
	for {
		eaten = append(eaten, make([]byte, 32<<20))
		if len(eaten) > 1000 {
			return errors.New("it is never enough")
		}
	}
}

// batch answers each request with the size of the batch.
func (in *instance) batch(requests []*sdk.Request) error {
	for _, r := range requests {
		if err := respond(r, int32(len(requests)), nil); err != nil {
			return err
		}
	}
	return nil
}

// repeat answers INPUT0 times from its own goroutine, then sends the final flag.
func (in *instance) repeat(requests []*sdk.Request) error {
	for _, r := range requests {
		n, err := input(r)
		if err != nil {
			return err
		}
		factory := r.Factory()
		if err := r.Release(sdk.ReleaseAll); err != nil {
			return err
		}
		go func() {
			defer factory.Close()
			for i := range n {
				response, err := factory.NewResponse()
				if err == nil {
					err = fill(response, i)
				}
				if err == nil {
					err = response.Send(0, nil)
				}
				if err != nil {
					fmt.Fprintln(os.Stderr, "repeat:", err)
					return
				}
			}
			_ = factory.SendFlags(sdk.SendFinal)
		}()
	}
	return nil
}

func input(r *sdk.Request) (int32, error) {
	in, err := r.Input("INPUT0")
	if err != nil {
		return 0, err
	}
	if len(in.Data()) < 4 {
		return 0, sdk.Errorf(sdk.InvalidArg, "INPUT0 has %d bytes", len(in.Data()))
	}
	return int32(binary.LittleEndian.Uint32(in.Data())), nil
}

func fill(response *sdk.Response, value int32) error {
	data, err := response.Output("OUTPUT0", sdk.Int32, []int64{1})
	if err == nil {
		binary.LittleEndian.PutUint32(data, uint32(value))
	}
	return err
}

// respond answers a request and releases it.
func respond(r *sdk.Request, value int32, failure error) error {
	response, err := r.NewResponse()
	if err != nil {
		return err
	}
	if failure == nil {
		shape := []int64{1}
		if r.BatchSize() > 0 {
			shape = []int64{1, 1}
		}
		var data []byte
		if data, failure = response.Output("OUTPUT0", sdk.Int32, shape); failure == nil {
			binary.LittleEndian.PutUint32(data, uint32(value))
		}
	}
	if err := response.Send(sdk.SendFinal, failure); err != nil {
		return err
	}
	return r.Release(sdk.ReleaseAll)
}
