package python

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/backend/process/launch"
	"github.com/nereid-serving/nereid/backend/process/output"
	"github.com/rs/zerolog"
)

// wish is what settings say about the interpreter.
type wish struct {
	executable string // "": the first on PATH that has numpy
	noTemplate bool
}

// python is an interpreter that models use, with its template. It is found when
// the first of them is started.
type python struct {
	backend *Backend
	wish    wish

	mu        sync.Mutex
	current   *template // nil until one has been found
	searching *search   // that is under way
	tries     int       // restarts of a template that died
}

// python returns the interpreter of models with these settings.
func (b *Backend) python(c *Config) *python {
	w := wish{c.Executable, c.NoTemplate}
	b.pythons.Lock()
	defer b.pythons.Unlock()
	p := b.pythons.byWish[w]
	if p == nil {
		p = &python{backend: b, wish: w}
		b.pythons.byWish[w] = p
	}
	return p
}

// search is a search for the interpreter.
type search struct {
	done chan struct{} // closed when it is over
	err  error         // set before
}

// template finds the interpreter, and keeps it; it may have died since. A search
// that found none is over for all goroutines that waited for it: a later load has it
// made anew, for something may have been installed.
func (p *python) template() (*template, error) {
	p.mu.Lock()
	if p.current != nil {
		defer p.mu.Unlock()
		return p.current, nil
	}
	s := p.searching
	if s != nil {
		p.mu.Unlock()
		<-s.done
	} else {
		s = &search{done: make(chan struct{}), err: errors.New("the search for an interpreter was broken off")}
		p.searching = s
		p.mu.Unlock()
		p.search(s)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current, s.err
}

// search looks for the interpreter.
func (p *python) search(s *search) {
	var t *template
	defer func() {
		p.mu.Lock()
		p.current, p.searching = t, nil
		p.mu.Unlock()
		close(s.done)
	}()
	if t, s.err = p.backend.findInterpreter(p.wish.executable); s.err == nil {
		i := t.interpreter
		p.backend.log.Info().Str("python", i.Python).Str("numpy", i.Numpy).Str("path", i.Path).Msg("using Python interpreter")
		if len(i.Threads) > 0 && !p.wish.noTemplate {
			p.backend.log.Warn().Str("path", i.Path).Strs("threads", i.Threads).
				Msg("the start of the interpreter leaves threads behind, so each process of a model is started as a program instead of being forked")
		}
	}
}

func (p *python) close() {
	p.mu.Lock()
	t := p.current
	p.mu.Unlock()
	if t != nil {
		t.close()
	}
}

// maxTemplateRestarts bounds how often a template that died is started anew;
// after that stubs are started as programs.
const maxTemplateRestarts = 3

// start starts a stub: forked from the template where there is one.
func (p *python) start(instance string, files *process.Files) (*launch.Process, error) {
	t, err := p.template()
	if err != nil {
		return nil, err
	}
	b, children := p.backend, p.backend.supervisor.Children()
	if !p.wish.noTemplate && len(t.interpreter.Threads) == 0 {
		if t = p.usable(t); t != nil {
			stub, err := children.Bear(func() (*launch.Process, error) { return t.fork(instance, children.NewMark(), files) })
			if err == nil {
				return stub, nil
			}
			b.log.Warn().Err(err).Msg("template did not fork a stub, it is started as a program")
		}
	}
	p.mu.Lock()
	path := p.current.interpreter.Path
	p.mu.Unlock()
	return children.Bear(func() (*launch.Process, error) {
		return startStub(path, filepath.Join(b.dir, "triton_python_backend_stub"), instance, children.NewMark(), files)
	})
}

// startStub starts a stub of its own: a program, not a fork of the template.
func startStub(interpreter, program, instance, mark string, files *process.Files) (*launch.Process, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	inherit := append([]*os.File{null, files.Output[0], files.Output[1]}, files.List()...)
	numbers := make([]string, 0, 7)
	for fd := 3; fd < len(inherit); fd++ {
		numbers = append(numbers, strconv.Itoa(fd))
	}
	return launch.Start([]string{interpreter, "-u", program, instance, "--fds=" + strings.Join(numbers, ",")}, inherit, mark)
}

// usable returns t, or another one in its place if it has died, or nil.
func (p *python) usable(t *template) *template {
	if t.usable() {
		return t
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != t {
		t = p.current
		if t.usable() {
			return t
		}
		return nil
	}
	if p.tries >= maxTemplateRestarts {
		return nil
	}
	p.tries++
	fresh, err := p.backend.startTemplate(t.interpreter.Path)
	if err != nil {
		p.backend.log.Warn().Err(err).Msg("template did not start again")
		return nil
	}
	p.backend.supervisor.Children().Later(t.close)
	p.current = fresh
	return fresh
}

// startTemplate starts a template; what it prints is part of the error if it
// does not come up.
func (b *Backend) startTemplate(interpreter string) (*template, error) {
	// Nothing is printed by a template that works; a failing one is reported below.
	out, far, err := output.Open(zerolog.Nop(), [2]io.Writer{}, output.Limits{})
	if err != nil {
		return nil, err
	}
	out.Begin()
	t, err := startTemplate(b, interpreter, filepath.Join(b.dir, "nereid_template"), far)
	_ = far[0].Close()
	_ = far[1].Close()
	if err != nil {
		out.Finish()
		if lines := out.LastLines(); len(lines) > 0 {
			err = fmt.Errorf("%w (it printed: %s)", err, lines[len(lines)-1])
		}
		return nil, err
	}
	b.supervisor.Children().Later(func() {
		<-t.gone
		out.Finish()
	})
	return t, nil
}
