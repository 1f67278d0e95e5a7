package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid/bench/measure"
)

// measureLimits starts servers with more models than the descriptors or processes suffice for. It
// shows how many of them serve, and the errors of the others.
func (s *settings) measureLimits(r *report) error {
	var table measure.Table
	table.Row("limit", "server", "models", "ready", "of them answer", "live", "why a model is not ready", "after the limit: one more loads")
	for _, limit := range []struct {
		name string
		make func() (prefix []string, lift func(*server), remove func(), err error)
	}{
		{fmt.Sprint(s.descriptors, " descriptors"), s.limitDescriptors},
		{fmt.Sprint(s.processes, " processes and threads"), s.limitProcesses},
	} {
		for _, v := range r.rivals {
			prefix, lift, remove, err := limit.make()
			if err != nil {
				fmt.Fprintf(r.out, "\n%s: it cannot be set here: %v\n", limit.name, err)
				continue
			}
			row, err := s.atLimit(v, s.limited, prefix, lift)
			remove()
			if err != nil {
				row = []any{"", "", "", strings.ReplaceAll(lastLine(err.Error()), "|", "/"), ""}
			}
			table.Row(append([]any{limit.name, v.name, s.limited}, row...)...)
		}
	}
	return r.print("At a limit", &table)
}

func (s *settings) atLimit(v rival, models int, prefix []string, lift func(*server)) (row []any, err error) {
	root, err := makeRepository(models, 1)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(root)
	p, err := v.start(root, prefix, "--exit-on-error=false")
	if err != nil {
		return nil, err
	}
	defer func() { _, _, _ = p.stop() }() // the exit status does not matter
	index, err := p.index()
	if err != nil {
		return nil, err
	}
	ready, answered, why := 0, 0, ""
	for _, model := range index {
		if model.State != "READY" {
			why = model.Reason
			continue
		}
		ready++
		if p.infer(model.Name) == nil {
			answered++
		}
	}
	live := "no"
	if status, _, err := p.ask(http.MethodGet, p.http, "/v2/health/live"); err == nil && status == http.StatusOK {
		live = "yes"
	}
	lift(p)
	more := "none was left"
	for _, model := range index {
		if model.State == "READY" {
			continue
		}
		status, text, err := p.ask(http.MethodPost, p.http, "/v2/repository/models/"+model.Name+"/load")
		switch {
		case err != nil:
			more = err.Error()
		case status != http.StatusOK:
			more = string(text)
		default:
			more = "yes"
		}
		break
	}
	return []any{ready, answered, live, short(why), short(more)}, nil
}

type indexed struct{ Name, Version, State, Reason string }

func (p *server) index() (models []indexed, err error) {
	text, err := p.want(http.MethodPost, p.http, "/v2/repository/index", "")
	if err != nil {
		return nil, err
	}
	return models, json.Unmarshal(text, &models)
}

// short shortens a text for a cell.
func short(text string) string {
	const most = 300
	text = strings.Join(strings.Fields(strings.ReplaceAll(text, "|", "/")), " ")
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return short(lines[0] + " … " + lines[len(lines)-1])
}

// limitDescriptors returns a command prefix that limits the server's descriptors.
func (s *settings) limitDescriptors() (prefix []string, lift func(*server), remove func(), err error) {
	lift = func(p *server) {
		// Unloading a model makes room for another one.
		_, _, _ = p.ask(http.MethodPost, p.http, "/v2/repository/models/"+modelName(0)+"/unload")
	}
	return []string{"/bin/sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$@"`, s.descriptors), "sh"}, lift, func() {}, nil
}

// limitProcesses creates a control group for the server.
func (s *settings) limitProcesses() (prefix []string, lift func(*server), remove func(), err error) {
	group := filepath.Join("/sys/fs/cgroup", fmt.Sprint("nereid-scale-", os.Getpid()))
	if _, err := os.Stat("/sys/fs/cgroup/pids"); err == nil {
		group = filepath.Join("/sys/fs/cgroup/pids", filepath.Base(group))
	}
	if err := os.Mkdir(group, 0o755); err != nil {
		return nil, nil, nil, err
	}
	remove = func() { _ = os.Remove(group) }
	most := filepath.Join(group, "pids.max")
	if err := os.WriteFile(most, []byte(strconv.Itoa(s.processes)), 0o644); err != nil {
		remove()
		return nil, nil, nil, err
	}
	lift = func(*server) { _ = os.WriteFile(most, []byte("max"), 0o644) }
	return []string{"/bin/sh", "-c", fmt.Sprintf(`echo $$ >'%s/cgroup.procs' && exec "$@"`, group), "sh"}, lift, remove, nil
}
