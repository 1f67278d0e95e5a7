package native

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/kserve"
)

// program describes the processes of one model version.
type program struct {
	backend *Backend
	name    string // of the backend
	path    string
	env     backend.Env
	known   *known
	log     zerolog.Logger
	taking  time.Duration // how long a process may keep the pipe of its handshake afterwards
}

var _ process.Program = (*program)(nil)

// Capabilities implements process.Program. Times that an author reports by sdk.Statistics arrive
// with the response.
func (p *program) Capabilities() process.ProgramCapabilities {
	return process.ProgramCapabilities{ReportsTimes: true}
}

// Check implements process.Program.
func (p *program) Check(context.Context, string) error { return p.check() }

// Configure implements process.Program. The plugin itself checks the config.
func (p *program) Configure(*kserve.ModelConfig) error { return nil }

// Close implements process.Program. There is nothing to release.
func (p *program) Close() {}

// completeBody is the body of AUTO_COMPLETE.
type completeBody struct {
	ipc.PluginBackend
	ipc.PluginModel
	process.Surroundings
}

// initializeBody is the body of INITIALIZE. The fields of the initialization are copied here,
// because the encoder only finds embedded structs one level deep.
type initializeBody struct {
	ipc.PluginBackend
	ipc.PluginModel
	ipc.PluginInstance
	process.Tensors
	process.Surroundings
	process.Window
}

func (p *program) wireBackend() ipc.PluginBackend {
	return ipc.PluginBackend{Name: p.name, Directory: filepath.Dir(p.path), Settings: p.known.values, Message: p.known.message}
}

// bound: the config
func (p *program) wireModel(config []byte, complete bool) ipc.PluginModel {
	return ipc.PluginModel{
		Name: p.env.Name, Version: p.env.Version, Directory: p.env.Directory, Config: string(config), AutoComplete: complete,
	}
}

// Complete implements process.Program.
func (p *program) Complete(config []byte, surroundings process.Surroundings) any {
	return &completeBody{p.wireBackend(), p.wireModel(config, true), surroundings}
}

// Initialize implements process.Program.
func (p *program) Initialize(at process.InstanceSpec, i process.Initialization) any {
	return &initializeBody{
		PluginBackend: p.wireBackend(), PluginModel: p.wireModel(at.Config, false), PluginInstance: wireInstance(at),
		Tensors: i.Tensors, Surroundings: i.Surroundings, Window: i.Window,
	}
}

func wireInstance(at process.InstanceSpec) ipc.PluginInstance {
	in := ipc.PluginInstance{
		Name: at.Instance, Kind: at.Kind, Profiles: at.Group.GetProfile(), Passive: at.Group.GetPassive(), HostPolicy: at.HostPolicy,
	}
	if device, err := strconv.ParseInt(at.Device, 10, 32); err == nil {
		in.Device = int32(device)
	}
	for _, s := range at.Group.GetSecondaryDevices() {
		// bound: the config
		in.Secondary = append(in.Secondary, ipc.PluginSecondaryDevice{Kind: s.GetKind().String(), Device: s.GetDeviceId()})
	}
	return in
}

// Text implements process.Program. Triton has no texts for a lost backend, because a crash of a
// backend ends the server.
func (p *program) Text(fault process.Fault, subject string) string {
	switch fault {
	case process.ProcessLost:
		return fmt.Sprintf("the process of backend '%s' for instance '%s' has ended unexpectedly", p.name, subject)
	case process.ReadyLate, process.SharedReadyLate:
		return fmt.Sprintf("backend '%s' did not say in time whether instance '%s' is ready", p.name, subject)
	case process.ReadyLost:
		return fmt.Sprintf("the process of backend '%s' for instance '%s' has ended while it was asked whether it is ready", p.name, subject)
	case process.NotReady:
		return fmt.Sprintf("instance '%s' of backend '%s' is not ready", subject, p.name)
	case process.OneResponseWanted:
		return fmt.Sprintf("model '%s' is decoupled and may answer any number of times: backend '%s' asked it for one response", subject, p.name)
	case process.LeastMemory:
		return "Each instance of a native backend requires at least 1 MB of shared memory."
	}
	return ""
}
