package status

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/panics"
)

const (
	// fresh is the age up to which a snapshot is reused, so that many readers cost no more than
	// one.
	fresh = 200 * time.Millisecond
	// patience bounds how long a reader waits for a collection.
	patience = 500 * time.Millisecond
)

// Config has the sources of a Keeper. The functions are called by one goroutine.
type Config struct {
	// Server returns the current values; At, Uptime and Started are the Keeper's.
	Server func() Server
	// Versions lists all versions that were loaded or failed to load, sorted as in Snapshot.
	Versions func() []models.VersionStatus
	Figures  func() []metrics.Figures
	// Instances lists the instances with processes, sorted by version and name.
	Instances func() []Instance
	Lines     *Log           // nil: the log is not kept
	Log       zerolog.Logger // of panics
}

// Keeper takes snapshots. All methods but Run may be called from any goroutine.
type Keeper struct {
	config  Config
	started time.Time
	asked   chan struct{} // a reader wants a collection; capacity 1, since one serves all
	last    atomic.Pointer[Snapshot]

	histories map[key]*history // Run's goroutine alone

	mu   sync.Mutex
	next chan struct{} // closed and replaced when a collection has ended
}

// NewKeeper returns a Keeper with an empty snapshot.
func NewKeeper(config Config) *Keeper {
	if config.Lines == nil {
		config.Lines = &Log{}
	}
	k := &Keeper{config: config, started: time.Now(), asked: make(chan struct{}, 1), next: make(chan struct{}), histories: make(map[key]*history)}
	k.last.Store(&Snapshot{LatencyBounds: bounds(), Versions: []Version{}})
	return k
}

// Run collects until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	tick := time.NewTicker(Step)
	defer tick.Stop()
	for keep := true; ; {
		panics.Guard(k.config.Log, panics.Server, func() { k.collect(keep) }, nil)()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			keep = true
		case <-k.asked:
			keep = false
		}
	}
}

// Snapshot returns the state of the server. It has the last log lines above the sequence number
// after, at most lines of them, and as many errors. The caller must not change it.
func (k *Keeper) Snapshot(ctx context.Context, after uint64, lines int) *Snapshot {
	k.refresh(ctx)
	s := *k.last.Load()
	s.Errors = k.config.Lines.Errors(after, lines)
	s.Log, s.Last = k.config.Lines.Lines(after, lines)
	return &s
}

// SnapshotBytes returns the memory of the log lines that Snapshot would copy.
func (k *Keeper) SnapshotBytes(after uint64, lines int) int64 {
	return k.config.Lines.size(after, lines)
}

// refresh waits for a recent or new collection, within bounds.
func (k *Keeper) refresh(ctx context.Context) {
	if time.Since(k.last.Load().At) < fresh {
		return
	}
	k.mu.Lock()
	next := k.next
	k.mu.Unlock()
	select {
	case k.asked <- struct{}{}:
	default: // already asked for
	}
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case <-next:
	case <-limit.C:
	case <-ctx.Done():
	}
}

// collect takes a snapshot. If keep is true the history gets a point.
func (k *Keeper) collect(keep bool) {
	now := time.Now()
	s := &Snapshot{At: now, Server: k.config.Server(), LatencyBounds: bounds()}
	s.Server.Started, s.Server.Uptime = k.started, now.Sub(k.started).Seconds()
	s.Versions = k.versions(now, keep)
	k.last.Store(s)
	k.mu.Lock()
	close(k.next)
	k.next = make(chan struct{})
	k.mu.Unlock()
}

// versions joins the data of registry, metrics and supervisor.
func (k *Keeper) versions(now time.Time, keep bool) []Version {
	list := []Version{}
	at := make(map[key]int)
	find := func(of key) *Version {
		i, known := at[of]
		if !known {
			i = len(list)
			at[of] = i
			list = append(list, Version{Model: of.model, Namespace: of.namespace, Version: of.version, Instances: []Instance{}, Recent: []Period{}})
		}
		return &list[i]
	}
	within := make(map[key][]models.VersionStatus)
	for _, v := range k.config.Versions() {
		of := key{v.Namespace, v.Name, v.Version}
		one := find(of)
		one.State, one.Reason = v.State, v.Reason
		one.InFlight += int64(v.InFlight)
		if v.Info != nil {
			one.describe(v.Info)
		}
		within[of] = append(within[of], v) // bound: the versions of the repository
	}
	for _, in := range k.config.Instances() {
		one := find(key{in.Namespace, in.Model, in.Version})
		one.Instances = append(one.Instances, in) // bound: the instances
	}
	for of, known := range within { // instances inside the server have no process
		if one := find(of); len(one.Instances) == 0 {
			for _, v := range known {
				one.addInside(v.Instances)
			}
		}
	}
	k.count(now, keep, at, list)
	slices.SortFunc(list, func(a, b Version) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Model, b.Model), cmp.Compare(a.Version, b.Version))
	})
	return list
}

// describe adds fields of the config.
func (v *Version) describe(info *models.Info) {
	v.Backend, v.Platform, v.MaxBatch = info.Config.GetBackend(), info.Platform(), info.Config.GetMaxBatchSize()
	for _, g := range info.Config.GetInstanceGroup() {
		v.Groups = append(v.Groups, Group{g.GetName(), strings.TrimPrefix(g.GetKind().String(), "KIND_"), g.GetCount()}) // bound: the groups of the config
	}
}

// addInside adds the instances without a process.
func (v *Version) addInside(names []string) {
	for _, name := range names {
		v.Instances = append(v.Instances, Instance{Name: name, State: "ready", Kind: "CPU"}) // bound: the instances
	}
}

// count adds the counters of the versions in list, which at indexes, and keeps them if keep.
func (k *Keeper) count(now time.Time, keep bool, at map[key]int, list []Version) {
	before := k.last.Load().At
	if before.IsZero() {
		before = k.started
	}
	counted := make(map[key]bool)
	for _, f := range k.config.Figures() {
		of := key{f.Namespace, f.Model, f.Version}
		i, known := at[of]
		if !known {
			continue // it is being opened
		}
		counted[of] = true // bound: the versions of the repository
		v := &list[i]
		v.Queue, v.Load = f.Pending, f.Load.Seconds()
		v.InFlight = max(v.InFlight, v.Queue) // read at another instant
		v.Counters = Counters{f.Succeeded, f.Failed, f.Inferences, f.Executions, f.CacheHits, f.CacheMisses}
		if s := f.Stages; s != nil {
			v.Latency = &Latency{times(&s[0]), times(&s[1]), times(&s[2]), times(&s[3]), times(&s[4])}
		}
		h := k.histories[of]
		present, total := pointOf(now, &f), f.Succeeded+v.Counters.Failures()
		if h == nil || total < h.total {
			if h == nil && len(k.histories) >= busyVersions {
				continue
			}
			// Before the load, which the previous collection has not seen, all counts were 0.
			h = &history{points: []point{{at: before}}}
			k.histories[of] = h // bound: busyVersions
		}
		h.total = total
		v.Recent = h.recent(&present, f.Stages != nil)
		if keep {
			h.keep(present)
		}
	}
	for of := range k.histories {
		if !counted[of] {
			delete(k.histories, of)
		}
	}
}

func times(t *metrics.Times) Times { return Times{slices.Clone(t.Counts[:]), t.Sum.Seconds()} }
