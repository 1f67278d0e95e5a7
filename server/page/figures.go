package page

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/status"
)

// Status takes snapshots; status.Keeper implements it. It waits no longer than a fraction of a
// second.
type Status interface {
	Snapshot(ctx context.Context, after uint64, lines int) *status.Snapshot
}

// shownPeriod is the index in status.Version.Recent of the overview's period: five minutes.
const shownPeriod = 1

// snapshot has the status of the versions by name and number. All but errors is empty if the group
// statistics is closed.
type snapshot struct {
	at       time.Time
	server   *status.Server
	versions map[string]*status.Version
	errors   []line // empty if the group logging is closed
	// unread are the models without a version that have a reason, which the index does not have. It
	// is empty if the group model-repository is closed.
	unread []*status.Version
}

// snapshot returns a snapshot with that many errors of the log.
func (p *Pages) snapshot(ctx context.Context, errors int) (s snapshot) {
	now := p.status.Snapshot(ctx, 0, errors)
	if p.open(server.GroupLogging) {
		s.errors = lines(now.Errors)
	}
	if p.open(server.GroupModelRepository) {
		for i := range now.Versions {
			if v := &now.Versions[i]; v.Version == 0 && v.Reason != "" {
				s.unread = append(s.unread, v) // bound: the versions of the repository
			}
		}
	}
	if !p.open(server.GroupStatistics) {
		return s
	}
	s.at, s.server, s.versions = now.At, &now.Server, make(map[string]*status.Version)
	for i := range now.Versions {
		v := &now.Versions[i]
		if at := v.Model + "/" + versionText(v.Version); s.versions[at] == nil {
			s.versions[at] = v // bound: the versions of the repository
		}
	}
	return s
}

// of returns the figures of a version, or nil.
func (s *snapshot) of(model, version string) *figures {
	v := s.versions[model+"/"+version]
	if v == nil {
		return nil
	}
	f := &figures{
		Queue: v.Queue, InFlight: v.InFlight, Succeeded: v.Counters.Succeeded, Failed: v.Counters.Failures(), Executions: v.Counters.Executions,
		CacheHits: v.Counters.CacheHits, CacheMisses: v.Counters.CacheMisses, Groups: v.Groups, Total: len(v.Instances),
	}
	for _, why := range []string{"REJECTED", "CANCELED", "BACKEND", "OTHER"} {
		if n := v.Counters.Failed[why]; n > 0 {
			f.FailedBy = append(f.FailedBy, reason{why, n}) // bound: the reasons
		}
	}
	for i := range v.Recent {
		f.Periods = append(f.Periods, periodOf(&v.Recent[i])) // bound: the periods of the status
	}
	if len(v.Recent) > shownPeriod {
		f.Recent = &f.Periods[shownPeriod]
	}
	for i := range v.Instances {
		one := s.instance(&v.Instances[i])
		f.Instances = append(f.Instances, one) // bound: the instances of a version
		f.Memory += one.Resident
		if one.State.Class == good {
			f.Ready++
		}
	}
	return f
}

// figures are the measurements of one version.
type figures struct {
	Queue, InFlight               int64
	Succeeded, Failed, Executions int64
	CacheHits, CacheMisses        int64
	FailedBy                      []reason
	Periods                       []period
	Recent                        *period // the period of the overview; nil if missing
	Instances                     []instance
	Ready, Total                  int
	Memory                        int64 // of the processes, in bytes
	Groups                        []status.Group
}

// reason is why requests failed, and how many.
type reason struct {
	Why   string
	Count int64
}

// period has the counts of a version in the last minutes.
type period struct {
	Name              string
	Partly            string // the observed part of it, "" if all
	Succeeded, Failed int64
	Rate              string // requests a second
	Batch             string // inferences of an execution
	Stages            []stage
	P50, P99          string // of the requests
}

// stage has the percentiles of a part of the requests' time.
type stage struct{ Name, P50, P90, P95, P99 string }

func periodOf(p *status.Period) period {
	one := period{Name: strconv.Itoa(p.Seconds/60) + " min", Succeeded: p.Succeeded, Failed: p.Failed, Batch: "–", Rate: "–"}
	if p.Covered < float64(p.Seconds)-1 {
		one.Partly = ageText(seconds(p.Covered))
	}
	if p.Covered > 0 {
		one.Rate = strconv.FormatFloat(float64(p.Succeeded+p.Failed)/p.Covered, 'f', decimals(float64(p.Succeeded+p.Failed)/p.Covered), 64)
	}
	if p.Executions > 0 {
		one.Batch = fmt.Sprintf("%.1f", float64(p.Inferences)/float64(p.Executions))
	}
	for _, s := range []struct {
		name string
		of   *status.Percentiles
	}{{"request", p.Request}, {"queue", p.Queue}, {"execution", p.Infer}} {
		if s.of != nil {
			one.Stages = append(one.Stages, stage{s.name, secondsText(s.of.P50), secondsText(s.of.P90), secondsText(s.of.P95), secondsText(s.of.P99)}) // bound: three stages
		}
	}
	if p.Request != nil {
		one.P50, one.P99 = secondsText(p.Request.P50), secondsText(p.Request.P99)
	}
	return one
}

// instance is one instance of a version.
type instance struct {
	Name     string
	State    state
	For      string // time in the state
	Device   string
	PID      int
	Resident int64
	Arena    int64
	Held     int64
	CPU      string
	Restarts int
	Losses   int
	Next     string // time until the next start
	Loss     *loss
}

// loss is the last loss of an instance's process.
type loss struct {
	Ago, Cause, Text string
}

func (s *snapshot) instance(in *status.Instance) instance {
	one := instance{
		Name: in.Name, State: instanceState(in.State), Device: in.Kind, PID: in.PID, Resident: in.Resident, Arena: in.Arena,
		Restarts: in.Restarts, Losses: in.Losses,
	}
	for _, n := range in.Memory {
		one.Held += n
	}
	if in.Kind == "GPU" {
		one.Device += " " + strconv.Itoa(int(in.Device))
	}
	if in.PID > 0 {
		one.CPU = secondsText(in.CPU)
	}
	if in.Since != nil {
		one.For = ageText(s.at.Sub(*in.Since))
	}
	if in.NextStart != nil && in.NextStart.After(s.at) {
		one.Next = ageText(in.NextStart.Sub(s.at) + time.Second)
	}
	if l := in.LastLoss; l != nil {
		one.Loss = &loss{ageText(s.at.Sub(l.At)), l.Cause, l.Text}
	}
	return one
}

// instanceState returns a state with its colour.
func instanceState(word string) state {
	switch word {
	case "ready", "busy":
		return state{good, word}
	case "dead":
		return state{bad, word}
	}
	return state{wait, word}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func secondsText(s float64) string { return durationText(seconds(s)) }

// line is one line of the log.
type line struct {
	Time, Machine string
	Level         state
	Source, Text  string
}

// lines formats log lines, newest first.
//
// bound: the lines that the page shows
func lines(of []status.Line) []line {
	list := make([]line, 0, len(of))
	for _, l := range slices.Backward(of) {
		class := ""
		switch l.Level {
		case "error", "fatal":
			class = bad
		case "warn":
			class = wait
		}
		at := l.Time.UTC()
		list = append(list, line{at.Format("15:04:05.000"), at.Format(time.RFC3339Nano), state{class, cmp.Or(l.Level, "info")}, l.Source, l.Text})
	}
	return list
}
