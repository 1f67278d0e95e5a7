package native

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	pluginrunner "github.com/hashicorp/go-plugin/runner"
	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/backend/process/launch"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/panics"
)

// endLimit is how long a process that has closed its stdout may take to exit, so that its exit
// status can be reported.
const endLimit = 500 * time.Millisecond

// Start implements process.Program. It returns when the process has completed the handshake.
func (p *program) Start(ctx context.Context, instance string, files *process.Files) (*launch.Process, error) {
	r := newRunner(p, files)
	stop := context.AfterFunc(ctx, panics.Guard(p.log, panics.Life, r.abandon, nil))
	late := panics.AfterLimit(p.log, panics.Life, p.known.config.StubTimeout, func() {
		r.late.Store(true)
		r.abandon()
	}, nil)
	err := p.greet(r)
	late.Stop()
	switch {
	case err != nil:
		stop()
	case !stop():
		err = context.Cause(ctx)
	case r.late.Load():
		err = process.Late("the handshake came too late")
	}
	if err == nil {
		return r.process, nil
	}
	exit := r.end()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	p.log.Debug().Str("instance", instance).Err(err).Msg("handshake with a plugin failed")
	return nil, r.refusal(err, exit)
}

// greet starts the process and performs go-plugin's handshake.
func (p *program) greet(r *runner) error {
	client := plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  plugin.HandshakeConfig{MagicCookieKey: ipc.PluginCookieKey, MagicCookieValue: ipc.PluginCookieValue},
		VersionedPlugins: map[int]plugin.PluginSet{ipc.PluginVersion: {}},
		AllowedProtocols: []plugin.Protocol{ipc.PluginProtocol},
		StartTimeout:     math.MaxInt64, // Start has a limit instead
		SkipHostEnv:      true,          // the runner adds it
		Logger:           newLogger(p.log),
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: temporary()},
		RunnerFunc: func(_ hclog.Logger, command *exec.Cmd, directory string) (pluginrunner.Runner, error) {
			_ = os.Remove(directory) // for sockets; this protocol uses none
			r.environment = append(r.environment, chosen(command.Env)...)
			return r, nil
		},
	})
	// Never client.Kill, which would dial the plugin: package process ends the process.
	_, err := client.Start()
	return err
}

// chosen returns the variables that go-plugin passes to plugins: the cookie and the versions.
//
// bound: two
func chosen(all []string) (variables []string) {
	for _, v := range all {
		if strings.HasPrefix(v, ipc.PluginCookieKey+"=") || strings.HasPrefix(v, ipc.PluginVersionsEnv+"=") {
			variables = append(variables, v)
		}
	}
	return variables
}

// temporary returns a directory in which go-plugin can create a folder. A server may have no
// writable /tmp.
func temporary() string {
	for _, directory := range []string{os.TempDir(), "/dev/shm"} {
		if unix.Access(directory, unix.W_OK) == nil {
			return directory
		}
	}
	return ""
}

// refusal is the error for clients when a plugin could not be started, with its causes for the log
// and the count of losses.
type refusal struct {
	told   *infer.Error
	causes []error // bound: three
}

func (e *refusal) Error() string   { return e.told.Message }
func (e *refusal) Unwrap() []error { return append([]error{e.told}, e.causes...) }

// refusal returns the reason for a failed handshake, whose process has ended; exit is nil if no
// process ran.
func (r *runner) refusal(cause error, exit *launch.ExitError) error {
	p := r.program
	code, text, detail, late := infer.Internal, "", "", false
	switch {
	case exit == nil && errors.Is(cause, unix.ENOEXEC):
		text = "cannot be executed here"
		if built := machine(p.path); built != "" {
			text += ": it was built for " + built
		}
	case exit == nil:
		text, detail = "was not started", "was not started: "+cause.Error()
	default:
		code, text, late = r.diagnose(exit)
	}
	e := &refusal{told: p.refused(code, text, cmp.Or(detail, text)), causes: []error{cause}}
	if exit != nil {
		e.causes = append(e.causes, exit)
	}
	if late {
		e.causes = append(e.causes, process.Late(text))
	}
	return e
}

// diagnose describes the output of the process and its end in a sentence.
func (r *runner) diagnose(exit *launch.ExitError) (code infer.Code, text string, late bool) {
	line, said := r.line()
	fields := strings.Split(line, "|") // bound: mostSaid
	if len(fields) < 5 {
		switch {
		case said:
			return infer.Internal, fmt.Sprintf("printed %q instead of its handshake line: is it built on package sdk/plugin, and does it print nothing to stdout before plugin.Serve?", infer.Cut(line, mostShown)), false
		case r.late.Load():
			return infer.Internal, fmt.Sprintf("did not make its handshake within %s (setting %s): its main has to call plugin.Serve of package sdk/plugin", r.program.known.config.StubTimeout, startTimeout), true
		case exit.Signal == 0:
			return infer.Internal, fmt.Sprintf("exited with code %d before its handshake: is it built on package sdk/plugin, whose Serve its main calls? Its last lines are in the log", exit.Code), false
		case r.ended && !r.killed.Load():
			return infer.Internal, fmt.Sprintf("was ended by %s before its handshake; its last lines are in the log", unix.SignalName(exit.Signal)), false
		}
		return infer.Internal, "closed its stdout before its handshake: its main has to call plugin.Serve of package sdk/plugin", false
	}
	built, err := strconv.Atoi(fields[1])
	switch {
	case fields[4] != ipc.PluginProtocol:
		return infer.Unsupported, fmt.Sprintf("is one of another program: its protocol is %q, want %q", infer.Cut(fields[4], mostShown), ipc.PluginProtocol), false
	case err != nil || fields[0] != strconv.Itoa(plugin.CoreProtocolVersion):
		return infer.Unsupported, fmt.Sprintf("made the handshake %q, want one like %q", infer.Cut(line, mostShown), ipc.PluginLine(ipc.PluginVersion)), false
	case built < ipc.PluginVersion:
		return infer.Unsupported, fmt.Sprintf("was built for version %d of the protocol of plugins, this server has version %d: rebuild it with the SDK of this server", built, ipc.PluginVersion), false
	case built > ipc.PluginVersion:
		return infer.Unsupported, fmt.Sprintf("was built for version %d of the protocol of plugins, this server has version %d: build it with the SDK of this server, or use a newer server", built, ipc.PluginVersion), false
	}
	return infer.Internal, fmt.Sprintf("ended its handshake %q too early", infer.Cut(line, mostShown)), false
}

// mostShown is the number of bytes of a process's output in an error.
const mostShown = 200
