package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// killed counts the processes killed by the soak.
const killed = "kill processes"

// kill kills a model process every two seconds.
func (k *soak) kill(ctx context.Context, r *rand.Rand) {
	for pause(ctx, r, 2*time.Second) {
		if stubs := k.server.stubs(); len(stubs) > 0 && unix.Kill(stubs[r.IntN(len(stubs))], unix.SIGKILL) == nil {
			k.results.event(killed)
		}
	}
}

// freeze stops a process for a second, like a debugger or a busy machine.
func (k *soak) freeze(ctx context.Context, r *rand.Rand) {
	for pause(ctx, r, 6*time.Second) {
		stubs := k.server.stubs()
		if len(stubs) == 0 {
			continue
		}
		pid := stubs[r.IntN(len(stubs))]
		if unix.Kill(pid, unix.SIGSTOP) == nil {
			k.results.event("stop processes for a second")
			pause(context.WithoutCancel(ctx), r, time.Second)
			_ = unix.Kill(pid, unix.SIGCONT) // it may be dead
		}
	}
}

// expect makes a model-control request.
func (k *soak) expect(ctx context.Context, what, path, body string, fine ...string) {
	if ctx.Err() != nil {
		return
	}
	status, text, err := k.server.post(context.WithoutCancel(ctx), path, body)
	select {
	case <-k.server.Ended():
		return
	default:
	}
	k.results.event(what)
	if err == nil && (status == http.StatusOK || status == http.StatusServiceUnavailable) {
		return
	}
	for _, part := range fine {
		if err == nil && strings.Contains(text, part) {
			return
		}
	}
	k.results.answered("model control", wrong, fmt.Sprintf("%s: status %d %s %v", what, status, digits.ReplaceAllString(text, "N"), err))
}

// lostInLoad are parts of the errors of loads whose process was killed meanwhile.
var lostInLoad = []string{"not healthy", "signal: killed", "stub", "SIGKILL", "was killed", "failed to poll from model repository"}

// move loads and unloads a model, and tries to load a broken one.
func (k *soak) move(ctx context.Context, r *rand.Rand) {
	for pause(ctx, r, time.Second) {
		k.expect(ctx, "load moves", "/v2/repository/models/moves/load", "", lostInLoad...)
		if !pause(ctx, r, time.Second) {
			return
		}
		k.expect(ctx, "unload moves", "/v2/repository/models/moves/unload", "")
		if r.IntN(4) == 0 {
			k.expect(ctx, "load broken", "/v2/repository/models/broken/load", "", append([]string{"this model never starts"}, lostInLoad...)...)
		}
	}
}

// regroup changes the number of instances of two models.
func (k *soak) regroup(ctx context.Context, r *rand.Rand) {
	for pause(ctx, r, 3*time.Second) {
		model := []string{"identity", "doubles"}[r.IntN(2)]
		body := fmt.Sprintf(`{"count":%d}`, 1+r.IntN(4))
		k.expect(ctx, "change instances", "/v2/repository/models/"+model+"/instances", body, lostInLoad...)
	}
}

// reload loads a running model with another configuration, so that its processes are replaced under
// load.
func (k *soak) reload(ctx context.Context, r *rand.Rand) {
	for pause(ctx, r, 8*time.Second) {
		config := fmt.Sprintf(`{"backend":"python","input":[{"name":"IN","data_type":"TYPE_INT32","dims":[1]}],`+
			`"output":[{"name":"OUT","data_type":"TYPE_INT32","dims":[1]}],"instance_group":[{"count":2,"kind":"KIND_CPU"}],`+
			`"parameters":{"draw":{"string_value":"%d"}}}`, r.Uint64())
		k.expect(ctx, "reload sleeps", "/v2/repository/models/sleeps/load", fmt.Sprintf(`{"parameters":{"config":%q}}`, config), lostInLoad...)
	}
}

// hang loads a model, makes it execute forever, and unloads it.
func (k *soak) hang(ctx context.Context, r *rand.Rand) {
	for pause(ctx, r, 4*time.Second) {
		k.expect(ctx, "load hangs", "/v2/repository/models/hangs/load", "", lostInLoad...)
		body := `{"inputs":[{"name":"IN","datatype":"INT32","shape":[1],"data":[-1]}]}`
		send(k, ctx, post("hangs", "", len(body), body)) // it waits for 2 s
		began := time.Now()
		k.expect(ctx, "unload hangs", "/v2/repository/models/hangs/unload", "")
		if took := time.Since(began); took > unloadTimeout+patience/3 {
			k.results.fault("unload of a model that hangs took %v, want %v and a little more", took.Round(time.Second), unloadTimeout)
		}
	}
}

// warm makes each model answer once, so that resources created by a first request exist before the
// server is measured.
func (k *soak) warm(ctx context.Context) error {
	r := rand.New(rand.NewPCG(k.seed, 0))
	for _, c := range k.goodClients() {
		if strings.HasSuffix(c.name, " moves") || strings.HasSuffix(c.name, " crashes") {
			continue
		}
		ask, closed, err := c.connect(k)
		if err != nil {
			return err
		}
		for range 5 {
			if err := ask(ctx, r); err != nil {
				closed()
				return fmt.Errorf("before the storm: %s: %w", c.name, err)
			}
		}
		closed()
	}
	return nil
}
