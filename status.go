package nereid

import (
	"cmp"
	"os"
	"slices"
	"time"

	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/server/status"
)

// controlNames are the control modes as the status shows them.
var controlNames = map[ControlMode]string{ControlNone: "none", ControlPoll: "poll", ControlExplicit: "explicit"}

// Status returns the source of snapshots of the server's state, from New to Close.
func (s *Server) Status() *status.Keeper { return s.status }

// makeStatus creates it.
func (s *Server) makeStatus(counters *metrics.Registry) {
	s.status = status.NewKeeper(status.Config{
		Server: s.describe, Versions: s.registry.Overview, Figures: counters.Figures, Instances: s.instances,
		Lines: s.options.Lines, Log: s.log,
	})
}

// keepStatus collects snapshots until the server is closed.
func (s *Server) keepStatus() { s.keep(panics.Server, s.status.Run) }

// describe returns the state of the server as a whole.
func (s *Server) describe() status.Server {
	one := status.Server{
		Name: s.options.ServerID, Version: ProtocolVersion, Build: s.options.Build, PID: os.Getpid(),
		Control: controlNames[s.options.Repository.Control], MemoryLimit: s.account.Limit(),
	}
	if cpu, resident, err := process.UsageOf(os.Getpid()); err == nil {
		one.CPU, one.Resident = cpu.Seconds(), resident
	}
	for k := range budget.Kind(budget.Kinds) {
		one.MemoryUsed += s.account.Used(k)
	}
	one.MemoryReal, one.MemoryShort, one.Holders = s.account.Real(), s.account.Pressed(), s.holders()
	return one
}

const (
	mostHolders = 10      // in the status
	leastHeld   = 1 << 20 // of each of them
)

// holders returns the largest holders of memory.
func (s *Server) holders() (list []status.Holder) {
	type held struct {
		holder *budget.Holder
		bytes  int64
	}
	var all []held
	s.account.Holders(func(h *budget.Holder) bool {
		if n := h.Total(); n >= leastHeld {
			all = append(all, held{h, n}) // bound: each has 1 MiB of the account
		}
		return true
	})
	slices.SortFunc(all, func(x, y held) int { return cmp.Compare(y.bytes, x.bytes) })
	for _, h := range all[:min(len(all), mostHolders)] {
		list = append(list, status.Holder{Name: h.holder.String(), Bytes: h.bytes}) // bound: mostHolders
	}
	return list
}

// instances lists the instances with processes.
func (s *Server) instances() (list []status.Instance) {
	if s.supervisor == nil {
		return nil
	}
	for _, in := range s.supervisor.Instances() {
		one := status.Instance{
			Model: in.Model, Namespace: in.Namespace, Version: in.Version, Name: in.Name, State: string(in.Phase), Since: moment(in.Since),
			Kind: in.Kind, Device: in.Device, PID: in.PID, Resident: in.Resident, Arena: in.Arena, CPU: in.CPU.Seconds(),
			Restarts: in.Restarts, Losses: in.Losses, NextStart: moment(in.NextStart),
		}
		for _, b := range in.Holds {
			if one.Memory == nil {
				one.Memory = make(map[string]int64)
			}
			one.Memory[b.Kind] = b.Bytes // bound: the kinds
		}
		if l := in.LastLoss; l != nil {
			one.LastLoss = &status.Loss{At: l.At, Cause: string(l.Cause), Text: l.Text}
		}
		list = append(list, one) // bound: the instances
	}
	return list
}

// moment returns a pointer to t, or nil for the zero time.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
