package process

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/metrics"
	"golang.org/x/sys/unix"
)

// Phase is the stage of an instance's life that operators see.
type Phase string

// The phases of an instance.
const (
	PhaseStarting   Phase = "starting"    // its first process starts, the model's initialize included
	PhaseReady      Phase = "ready"       // it waits for a batch
	PhaseBusy       Phase = "busy"        //  it executes a batch
	PhaseBackingOff Phase = "backing off" // its process is lost; the next one starts after a pause
	PhaseRestarting Phase = "restarting"  // a process starts after a loss
	PhaseDead       Phase = "dead"        // lost repeatedly: requests are rejected until it starts
	PhaseStopping   Phase = "stopping"    // told to end
)

// maxLossText limits the text of a loss, in bytes; the end of the text is kept.
const maxLossText = 16 << 10

// InstanceStatus describes one instance whose keeper runs, at one time.
type InstanceStatus struct {
	Model, Namespace string
	Version          int64
	Name             string
	Kind             string // CPU, GPU or MODEL
	Device           int32  // the number of its GPU, 0 without one
	Phase            Phase
	Since            time.Time // of the phase; Ready and Busy share one
	PID              int       // 0 without a process
	Restarts         int       // processes that became ready after a loss
	Losses           int
	LastLoss         *LossStatus // nil: none
	NextStart        time.Time   // for PhaseBackingOff, and for PhaseDead if known
	// Resources of the process; zero without one, or when it has just begun.
	CPU      time.Duration   // of all its threads, since it was started
	Resident int64           // bytes, including shared memory
	Arena    int64           // allocated bytes of shared memory for its outputs
	Holds    []metrics.Bytes // memory for requests that the server holds for it
}

// LossStatus describes a loss.
type LossStatus struct {
	At    time.Time
	Cause Cause
	Text  string // the reason and the last lines that the process wrote to stderr
}

// record is the keeper's notes about its lives. A record never changes: the keeper, its only
// writer, stores a new one, so that readers need no lock of the instance.
type record struct {
	phase            Phase // PhaseReady includes PhaseBusy
	since, nextStart time.Time
	pid              int
	exited           <-chan struct{} // closed when the process of pid has been reaped
	restarts, losses int
	lastLoss         *LossStatus
}

// note stores a changed record. Only the instance's keeper calls it.
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

// noteProcess records the process of a life, which may not be ready yet.
func (in *Instance) noteProcess(l *life) {
	next := *in.noted.Load()
	next.pid, next.exited = l.process.PID(), l.exited
	in.noted.Store(&next)
}

// noteUp records that a life accepts batches; again means after a loss.
func (in *Instance) noteUp(again bool) {
	in.note(PhaseReady, func(r *record) {
		if again {
			r.restarts++
		}
	})
}

// noteLoss records the end of a life and the start of the next one.
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
		text = "…" + strings.ToValidUTF8(text[over:], "") // bound: maxLossText
	}
	in.note(phase, func(r *record) {
		r.pid, r.exited, r.nextStart = 0, nil, r.since.Add(wait)
		r.losses++
		r.lastLoss = &LossStatus{At: r.since, Cause: why, Text: text}
	})
}

// enlist makes the supervisor list the instance while its keeper runs.
func (s *Supervisor) enlist(in *Instance, yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if yes {
		s.kept[in] = struct{}{} // bound: the instances
	} else {
		delete(s.kept, in)
	}
}

// Instances lists the instances whose keepers run, including those that start, by model, version
// and name. It waits for no load, request or process: the only lock that it takes is the
// supervisor's, which is held briefly.
func (s *Supervisor) Instances() []InstanceStatus {
	lives, usage := s.present(nil)
	at := make(map[*Instance]int, len(lives)) // bound: the instances
	for i, l := range lives {
		at[l.in] = i // bound: the instances
	}
	s.mu.Lock()
	kept := make([]*Instance, 0, len(s.kept)) // bound: the instances
	for in := range s.kept {
		kept = append(kept, in)
	}
	s.mu.Unlock()
	list := make([]InstanceStatus, len(kept)) // bound: the instances
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

// use adds the resources of the process, if any.
func (in *Instance) use(s *InstanceStatus) {
	r := in.noted.Load()
	if r == nil || r.pid == 0 || r.pid != s.PID {
		return
	}
	cpu, resident, err := UsageOf(r.pid)
	select {
	case <-r.exited: // the pid may be reused by now
	default:
		if err == nil {
			s.CPU, s.Resident = cpu, resident
		}
	}
}

func (in *Instance) status() InstanceStatus {
	env := &in.model.env
	s := InstanceStatus{
		Model: env.Name, Namespace: env.Namespace, Version: env.Version, Name: in.name, Kind: in.placement.Kind, Device: in.placement.Number(),
		Phase: PhaseStarting,
	}
	if r := in.noted.Load(); r != nil {
		s.Phase, s.Since, s.NextStart, s.PID, s.Restarts, s.Losses, s.LastLoss = r.phase, r.since, r.nextStart, r.pid, r.restarts, r.losses, r.lastLoss
	}
	if l := in.current.Load(); s.Phase == PhaseReady && l != nil && l.busy() {
		s.Phase = PhaseBusy
	}
	return s
}

// Processes returns the resources of all stub processes that have been told to initialize. A
// process that ends meanwhile is left out. The CPU time and memory of a process that several
// instances share are reported for its oldest instance.
func (s *Supervisor) Processes() []metrics.Process {
	lives, list := s.present(nil)
	kept := list[:0]
	oldest := make(map[*host]uint32) // bound: the processes
	for _, l := range lives {
		if first := oldest[l.host]; first == 0 || l.serial < first {
			oldest[l.host] = l.serial
		}
	}
	for i, l := range lives {
		if oldest[l.host] != l.serial {
			kept = append(kept, list[i]) // bound: the processes
			continue
		}
		// The file belongs to this process if it has not been reaped before and after the reading.
		cpu, resident, err := UsageOf(l.process.PID())
		select {
		case <-l.exited:
			continue
		default:
		}
		if err != nil {
			continue
		}
		one := list[i]
		one.CPU, one.Resident = cpu, resident
		kept = append(kept, one) // bound: the processes
	}
	return kept
}

// reportMemory returns the allocated shared memory for
// outputs of the model's processes, and the memory that these report themselves.
func (m *Model) reportMemory() (bytes int64) {
	lives, list := m.supervisor.present(m)
	for i := range list {
		bytes += list[i].Arena
	}
	for _, l := range lives {
		bytes += l.calls.Memory()
	}
	return bytes
}

// present returns the lives of a model, or of all models, with their arena sizes. A life leaves the
// set before it closes its channel, so the files are open while mu is held. /proc is read without
// it.
func (s *Supervisor) present(of *Model) ([]*life, []metrics.Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lives []*life          // bound: the processes
	var list []metrics.Process // bound: the processes
	for l := range s.lives {
		in := l.in
		if of != nil && in.model != of {
			continue
		}
		lives = append(lives, l) // bound: the processes
		list = append(list, metrics.Process{
			Model: in.model.env.Name, Namespace: in.model.env.Namespace, Version: in.model.env.Version, Instance: in.name, Device: in.gpu,
			Arena: l.channel.UpBytes(), Lent: int64(l.lent.Bytes()), Holds: l.quota.usage(),
		})
	}
	return lives, list
}

// ticks is the number of units of /proc/PID/stat per second (USER_HZ), on every machine.
const ticks = 100

// UsageOf reads the CPU time and resident memory of a process from /proc/PID/stat (proc(5)).
func UsageOf(pid int) (cpu time.Duration, resident int64, err error) {
	path := "/proc/" + strconv.Itoa(pid) + "/stat"
	// Package os would make additional system calls for each file, and a page of metrics reads one
	// file for each instance.
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, 0, &os.PathError{Op: "open", Path: path, Err: err}
	}
	var text [2 << 10]byte // about 50 numbers and a name of at most 64 bytes
	n, err := unix.Read(fd, text[:])
	_ = unix.Close(fd)
	if err != nil {
		return 0, 0, &os.PathError{Op: "read", Path: path, Err: err}
	}
	return parseUsage(text[:n])
}

// parseUsage reads the fields utime, stime and rss. The program's name comes before them in
// parentheses and may itself contain spaces and parentheses.
func parseUsage(stat []byte) (cpu time.Duration, resident int64, err error) {
	const utime, stime, rss = 14 - 3, 15 - 3, 24 - 3 // as proc(5) counts, whose number of the first field after the name is 3
	var numbers [3]int64
	at := 0
	for field := range bytes.FieldsSeq(stat[bytes.LastIndexByte(stat, ')')+1:]) {
		switch at {
		case utime:
			numbers[0], err = strconv.ParseInt(string(field), 10, 64) // bound: a number
		case stime:
			numbers[1], err = strconv.ParseInt(string(field), 10, 64) // bound: a number
		case rss:
			numbers[2], err = strconv.ParseInt(string(field), 10, 64) // bound: a number
		}
		if err != nil {
			return 0, 0, err
		}
		if at++; at > rss {
			break
		}
	}
	if at <= rss {
		return 0, 0, fmt.Errorf("stat has %d fields behind the name, want more than %d", at, rss)
	}
	return time.Duration(numbers[0]+numbers[1]) * (time.Second / ticks), numbers[2] * int64(os.Getpagesize()), nil
}
