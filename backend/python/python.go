package python

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/backend/process/launch"
	"github.com/nereid-serving/nereid/backend/process/output"
	"github.com/nereid-serving/nereid/conda"
	"github.com/nereid-serving/nereid/panics"
	"github.com/rs/zerolog"
)

// wish describes the interpreter that a model and its settings need.
type wish struct {
	executable string // "": the first on PATH that has numpy
	// environment is the directory of the execution environment of executable, or "".
	environment string
	noTemplate  bool
	pure        bool          // without the accelerator
	limit       time.Duration // until it has imported numpy; 0: none
	idle        time.Duration // after which its template is ended; 0: it is not
}

// wish returns the wish of the settings.
func (c *Config) wish() wish {
	return wish{executable: c.Executable, noTemplate: c.NoTemplate, pure: c.NoAccelerator, limit: c.InterpreterTimeout, idle: c.TemplateIdle}
}

// python is an interpreter that models use, with its template. It is found when the first of them
// starts.
type python struct {
	backend *Backend
	wish    wish
	// environment is nil without one. variables are those of its processes; nil means those of this
	// process.
	environment *conda.Environment
	variables   []string
	holders     int // guarded by Backend.pythons

	mu        sync.Mutex
	found     bool
	info      interpreterInfo // once it is found
	current   *template       // nil before it is found, and while no template runs
	searching *search         // that is under way
	tries     int             // restarts of a template that died
	starting  int             // processes that are being started
	timer     *time.Timer     // of rest; nil until it is needed
	rested    bool            // nothing was started for the time after which the template is ended
	closed    bool

	// hasTemplate is whether current is not nil, and isFound is whether the interpreter is found.
	// Backend reads them with its lock held and must not wait for mu, which is held while a template
	// starts.
	hasTemplate, isFound atomic.Bool
}

// setLocked sets the template.
func (p *python) setLocked(t *template) {
	p.current = t
	p.hasTemplate.Store(t != nil)
}

// search is a search for the interpreter.
type search struct {
	done   chan struct{} // closed when it is over
	err    error         // set before
	cancel func()        // ends it early

	waiting int // goroutines that wait for it; guarded by python.mu
}

// find finds the interpreter and keeps it. A failed search ends for all goroutines that waited for
// it; a later load searches again, because something may have been installed. The search is
// cancelled when all waiting contexts have ended. Its processes are gone when the last waiter
// returns.
func (p *python) find(ctx context.Context) (interpreterInfo, error) {
	p.mu.Lock()
	if p.found {
		defer p.mu.Unlock()
		return p.info, nil
	}
	s := p.searching
	if s == nil {
		s = p.beginSearchLocked()
	}
	s.waiting++
	p.mu.Unlock()
	select {
	case <-s.done:
	case <-ctx.Done():
		if p.leave(s) {
			<-s.done
		}
		return interpreterInfo{}, context.Cause(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.info, s.err
}

// beginSearchLocked starts a search in a separate goroutine, because goroutines with more time than
// the first may join it.
func (p *python) beginSearchLocked() *search {
	ctx, cancel := context.WithCancel(context.Background())
	s := &search{done: make(chan struct{}), err: errors.New("the search for an interpreter was broken off"), cancel: cancel}
	p.searching = s
	p.backend.supervisor.Children().Later(func() { p.search(ctx, s) })
	return s
}

// leave removes a waiting goroutine. After the last one it cancels the search and returns true.
func (p *python) leave(s *search) (last bool) {
	p.mu.Lock()
	s.waiting--
	last = s.waiting == 0
	if last && p.searching == s {
		p.searching = nil // a goroutine that comes now gets a search that is not ended
	}
	p.mu.Unlock()
	if last {
		s.cancel()
	}
	return last
}

// search looks for the interpreter.
func (p *python) search(ctx context.Context, s *search) {
	defer s.cancel()
	p.begin()
	defer p.end()
	var t *template
	defer func() {
		p.mu.Lock()
		left := p.searching != s // by all that waited for it
		if !left {
			p.searching = nil
		}
		switch {
		case t == nil:
		case left:
			p.backend.supervisor.Children().Later(t.close)
		case p.closed: // meanwhile: the model that wanted it has been closed
			p.backend.supervisor.Children().Later(t.close)
			s.err = errors.New("the interpreter is not used any more")
		default:
			p.found, p.info = true, t.interpreter
			p.isFound.Store(true)
			p.setLocked(t)
		}
		p.mu.Unlock()
		close(s.done)
	}()
	if t, s.err = p.findInterpreter(ctx); s.err == nil {
		i := t.interpreter
		accelerated := p.backend.log.Info()
		if i.AcceleratorFailed {
			accelerated = p.backend.log.Warn()
		}
		if i.FreeThreaded {
			accelerated = accelerated.Str("gil", "off")
		}
		accelerated.Str("python", i.Python).Str("numpy", i.Numpy).Str("path", i.Path).Str("accelerator", cmp.Or(i.NoAccelerator, "on")).
			Msg("using Python interpreter")
		if len(i.Threads) > 0 && !p.wish.noTemplate {
			p.backend.log.Warn().Str("path", i.Path).Strs("threads", i.Threads).
				Msg("the interpreter starts threads at startup, so each model process is started as a program instead of being forked")
		}
	}
}

// close ends the template. This interpreter starts no more processes.
func (p *python) close() {
	p.mu.Lock()
	t := p.current
	p.setLocked(nil)
	p.closed = true
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	if t != nil {
		t.close()
	}
}

// begin announces the start of a process, for which the template is needed.
func (p *python) begin() {
	p.mu.Lock()
	p.starting++
	p.rested = false
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
}

// end is the counterpart of begin. Some time after the last end the template is ended, because it
// uses memory, and restarting it takes no longer than starting a process without it. Another
// template may have been kept as the last one until this one started; it may end now.
func (p *python) end() {
	p.mu.Lock()
	p.starting--
	if p.starting == 0 && p.wish.idle > 0 && !p.closed && p.wish != p.backend.config.wish() {
		if p.timer != nil {
			p.timer.Stop()
		}
		p.timer = panics.AfterFunc(p.backend.log, panics.Life, p.wish.idle, p.rest, nil)
	}
	p.mu.Unlock()
	p.backend.rest()
}

// rest records that nothing was started for a while.
func (p *python) rest() {
	p.mu.Lock()
	p.rested = p.starting == 0 // else the timer had run out when begin stopped it
	p.mu.Unlock()
	p.backend.rest()
}

// takeIdle takes the idle template out of service and returns it; the caller ends it. It returns
// nil without a template, or if the template is needed.
func (p *python) takeIdle() *template {
	if !p.mu.TryLock() { // as it is while a template is started, whose end looks again
		return nil
	}
	defer p.mu.Unlock()
	if !p.rested {
		return nil
	}
	t := p.current
	p.setLocked(nil)
	return t
}

// wake starts the template unless it is running.
func (p *python) wake() {
	p.begin()
	defer p.end()
	p.usable()
}

// maxTemplateRestarts limits the restarts of a failed template. After that, stubs are started as
// programs.
const maxTemplateRestarts = 3

// start starts a stub, if possible as a fork of the template.
func (p *python) start(instance string, files *process.Files) (*launch.Process, error) {
	i, err := p.find(context.Background()) // it is found: Check comes before
	if err != nil {
		return nil, err
	}
	p.begin()
	defer p.end()
	b, children := p.backend, p.backend.supervisor.Children()
	if !p.wish.noTemplate && len(i.Threads) == 0 {
		if t := p.usable(); t != nil {
			mark := children.NewMark()
			stub, err := children.Bear(func() (*launch.Process, error) { return t.fork(instance, mark, files) })
			if err == nil {
				return stub, nil
			}
			if !t.usable() && !t.undo(children, mark) {
				return nil, fmt.Errorf("%w, and has not ended %s after it was killed", err, forkTimeout)
			}
			b.log.Warn().Err(err).Msg("template did not fork a stub; starting it as a program")
		}
	}
	return children.Bear(func() (*launch.Process, error) { return p.startStub(instance, children.NewMark(), files) })
}

// startStub starts a stub as a program, not as a fork of the template.
func (p *python) startStub(instance, mark string, files *process.Files) (*launch.Process, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	inherit := append([]*os.File{null, files.Output[0], files.Output[1]}, files.List()...) // bound: ten
	numbers := make([]string, 0, 7)
	for fd := 3; fd < len(inherit); fd++ {
		numbers = append(numbers, strconv.Itoa(fd))
	}
	program := filepath.Join(p.backend.dir, "triton_python_backend_stub")
	argv := []string{p.info.Path, "-u", program, instance, "--fds=" + strings.Join(numbers, ",")} // bound: ten
	if files.Joins != nil {
		argv = append(argv, "--join="+strconv.Itoa(len(inherit))) // bound: an argument
		inherit = append(inherit, files.Joins)                    // bound: ten
	}
	return launch.Start(launch.Command{
		Argv:  argv,
		Files: inherit, Environment: p.variables,
	}, mark)
}

// usable returns the template, restarted if it has died, or nil. Callers are between begin and end.
func (p *python) usable() *template {
	p.mu.Lock()
	t := p.current
	p.mu.Unlock()
	if t != nil && t.usable() {
		return t
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || !p.found {
		return nil
	}
	if p.current != t {
		if p.current.usable() {
			return p.current
		}
		return nil
	}
	if p.tries >= maxTemplateRestarts {
		return nil
	}
	if t != nil { // a template that was ended while idle has not died
		p.tries++
	}
	fresh, err := p.startTemplate(context.Background(), p.info.Path)
	if err != nil {
		if t == nil {
			p.tries++
		}
		p.backend.log.Warn().Err(err).Msg("template did not restart")
		return nil
	}
	if t != nil {
		p.backend.supervisor.Children().Later(t.close)
	}
	p.setLocked(fresh)
	return fresh
}

// startTemplate starts a template and waits until it is ready or ctx ends. An error includes the
// template's output.
func (p *python) startTemplate(ctx context.Context, interpreter string) (*template, error) {
	// A working template prints nothing; a failing one is reported below.
	out, far, err := output.Open(zerolog.Nop(), [2]io.Writer{}, output.Limits{})
	if err != nil {
		return nil, err
	}
	out.Begin()
	t, err := p.launchTemplate(ctx, interpreter, far)
	_ = far[0].Close()
	_ = far[1].Close()
	if err != nil {
		out.Finish()
		return nil, explained(err, out.LastLines())
	}
	p.backend.supervisor.Children().Later(func() {
		<-t.gone
		out.Finish()
	})
	return t, nil
}
