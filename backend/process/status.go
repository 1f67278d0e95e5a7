package process

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/metrics"
)

// Phase is where an instance is in its life, as operators are shown it.
type Phase string

// The phases of an instance.
const (
	PhaseStarting   Phase = "starting"    // its first process starts, the model's initialize included
	PhaseReady      Phase = "ready"       // it waits for a batch
	PhaseBusy       Phase = "busy"        // it executes
	PhaseBackingOff Phase = "backing off" // its process is lost; the next one starts after a pause
	PhaseRestarting Phase = "restarting"  // a process starts in place of one that was lost
	PhaseDead       Phase = "dead"        // lost again and again: requests are refused until it starts
	PhaseStopping   Phase = "stopping"    // told to end
)

// maxLossText bounds the text of a loss, in bytes: its last lines stay.
const maxLossText = 16 << 10

// InstanceStatus is one instance whose keeper runs, at one time.
type InstanceStatus struct {
	Model, Namespace string
	Version          int64
	Name             string
	Kind             string // CPU, GPU or MODEL
	Device           int32  // the number of its GPU, 0 elsewhere
	Phase            Phase
	Since            time.Time // of the phase; Ready and Busy have one
	PID              int       // 0: there is no process
	Restarts         int       // processes that became ready in place of a lost one
	Losses           int
	LastLoss         *LossStatus // nil: none
	NextStart        time.Time   // of PhaseBackingOff and, if it is to come, PhaseDead
	// What the process takes; zero where there is none, or it has just begun.
	CPU      time.Duration   // of all its threads, since it was started
	Resident int64           // bytes, what it shares with others among them
	Arena    int64           // bytes of shared memory that are real for its outputs
	Holds    []metrics.Bytes // memory for requests that the server holds for it
}

// LossStatus is the end of a process that was not told to end.
type LossStatus struct {
	At    time.Time
	Cause Cause
	Text  string // the reason and the process's last lines of standard error output
}

// record is what the keeper of an instance notes of its lives. A record does not change: the
// keeper, which alone writes, stores another, so that readers need no lock of the instance.
type record struct {
	phase            Phase // PhaseReady stands for PhaseBusy, too
	since, nextStart time.Time
	pid              int
	exited           <-chan struct{} // closed when the process of pid has been reaped
	restarts, losses int
	lastLoss         *LossStatus
}

// note changes the instance's record. The instance's keeper alone calls it.
func (in *Instance) note(phase Phase, change func(*record)) {
	next := record{}
	if old := in.noted.Load(); old != nil {
		next = *old
	}
	next.phase, next.since, next.nextStart = phase, time.Now(), time.Time{}
	if change != nil {
		change(&next)
	}
	in.noted.Store(&next)
}

// noteProcess notes the process of a life, which may not be ready yet.
func (in *Instance) noteProcess(l *life) {
	next := *in.noted.Load()
	next.pid, next.exited = l.process.PID(), l.exited
	in.noted.Store(&next)
}

// noteUp notes that a life takes batches, again says in place of a lost one.
func (in *Instance) noteUp(again bool) {
	in.note(PhaseReady, func(r *record) {
		if again {
			r.restarts++
		}
	})
}

// noteLoss notes the end of a life, and when the next one begins.
func (in *Instance) noteLoss(err error, why Cause, wait time.Duration, hopeless bool) {
	phase := PhaseBackingOff
	if hopeless {
		phase = PhaseDead
	}
	text := err.Error()
	if tail := stderrOf(err); tail != "" {
		text += "\n" + tail
	}
	if over := len(text) - maxLossText; over > 0 {
		text = "…" + strings.ToValidUTF8(text[over:], "")
	}
	in.note(phase, func(r *record) {
		r.pid, r.exited, r.nextStart = 0, nil, r.since.Add(wait)
		r.losses++
		r.lastLoss = &LossStatus{At: r.since, Cause: why, Text: text}
	})
}

// enlist has the supervisor list the instance while its keeper runs.
func (s *Supervisor) enlist(in *Instance, yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if yes {
		s.kept[in] = struct{}{}
	} else {
		delete(s.kept, in)
	}
}

// Instances lists the instances whose keepers run, those that start among them, by model, version
// and name. It waits for no load, no request and no process: of locks it takes the supervisor's, which
// is held for look-ups alone.
func (s *Supervisor) Instances() []InstanceStatus {
	lives, usage := s.present(nil)
	at := make(map[*Instance]int, len(lives))
	for i, l := range lives {
		at[l.in] = i
	}
	s.mu.Lock()
	kept := make([]*Instance, 0, len(s.kept))
	for in := range s.kept {
		kept = append(kept, in)
	}
	s.mu.Unlock()
	list := make([]InstanceStatus, len(kept))
	for i, in := range kept {
		list[i] = in.status()
		if n, lives := at[in]; lives {
			list[i].Arena, list[i].Holds = usage[n].Arena, usage[n].Holds
		}
		in.use(&list[i])
	}
	slices.SortFunc(list, func(a, b InstanceStatus) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Model, b.Model), cmp.Compare(a.Version, b.Version),
			strings.Compare(a.Name, b.Name), cmp.Compare(a.Device, b.Device), cmp.Compare(a.PID, b.PID))
	})
	return list
}

// use adds what the process takes, if there is one.
func (in *Instance) use(s *InstanceStatus) {
	r := in.noted.Load()
	if r == nil || r.pid == 0 || r.pid != s.PID {
		return
	}
	cpu, resident, err := UsageOf(r.pid)
	select {
	case <-r.exited: // the number may be another process's by now
	default:
		if err == nil {
			s.CPU, s.Resident = cpu, resident
		}
	}
}

func (in *Instance) status() InstanceStatus {
	env := &in.model.env
	s := InstanceStatus{
		Model: env.Name, Namespace: env.Namespace, Version: env.Version, Name: in.name, Kind: in.placed.Kind, Device: in.placed.Number(),
		Phase: PhaseStarting,
	}
	if r := in.noted.Load(); r != nil {
		s.Phase, s.Since, s.NextStart, s.PID, s.Restarts, s.Losses, s.LastLoss = r.phase, r.since, r.nextStart, r.pid, r.restarts, r.losses, r.lastLoss
	}
	if s.Phase == PhaseReady && in.busy() {
		s.Phase = PhaseBusy
	}
	return s
}

// busy reports whether the instance executes, without waiting for its lock: a goroutine that holds it
// mostly hands a batch over, or takes one back.
func (in *Instance) busy() bool {
	if !in.mu.TryLock() {
		return true
	}
	defer in.mu.Unlock()
	return in.state == Busy
}
