package catalog_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/catalog"
	"github.com/nereid-serving/nereid/models/repository"
)

// graph is a catalog of models, their sources, and the directories of its repositories.
type graph struct {
	*catalog.Catalog
	sources map[repository.Identity]*catalog.Source
	roots   []string
}

// graphOf wants and loads models. Each line is a model: its name, the states of its versions, READY
// before UNAVAILABLE, and for an ensemble its composing models, as "name" or "name:version".
// Ensembles are wanted, but not loaded.
func graphOf(t *testing.T, namespaces bool, lines ...string) graph {
	t.Helper()
	g := graph{sources: make(map[repository.Identity]*catalog.Source), roots: []string{t.TempDir(), t.TempDir()}}
	opened, err := repository.Open(g.roots, repository.Options{Namespacing: namespaces})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(opened.Close)
	g.Catalog = catalog.New(opened, &owner{})
	for _, line := range lines {
		name, rest, _ := strings.Cut(line, " ")
		id := repository.Identity{Name: name}
		if at, inner, ok := strings.Cut(name, "::"); ok {
			id = repository.Identity{Namespace: g.roots[at[0]-'0'], Name: inner}
		}
		states, steps, _ := strings.Cut(rest, "=")
		s := &catalog.Source{Description: &repository.Description{Name: id.Name, Namespace: id.Namespace, Config: configOf(id.Name, steps)}}
		var ready, failed []catalog.Result
		for i, state := range strings.Fields(states) {
			s.Versions = append(s.Versions, int64(i+1))
			if state == string(catalog.Ready) {
				ready = append(ready, loaded(s.Versions[i]))
			} else {
				failed = append(failed, catalog.Result{Number: s.Versions[i], Err: errors.New("no")})
			}
		}
		g.sources[id] = s
		g.Want(map[repository.Identity]*catalog.Source{id: s}, nil, nil)
		if ready != nil {
			g.Begin(id, s)
			g.Commit(id, s, ready)
		}
		if failed != nil {
			g.Begin(id, s)
			failure := g.Fail(id, failed, func(err error) string { return "Internal: " + err.Error() })
			g.Restore(id, s, failure.Message)
		}
	}
	return g
}

// configOf returns the config of a model, an ensemble if it has steps.
func configOf(name, steps string) *kserve.ModelConfig {
	ensembling := &kserve.ModelEnsembling{}
	for step := range strings.FieldsSeq(steps) {
		model, number, pinned := strings.Cut(step, ":")
		s := &kserve.ModelEnsembling_Step{ModelName: model, ModelVersion: -1}
		if pinned {
			s.ModelVersion = int64(number[0] - '0')
		}
		ensembling.Step = append(ensembling.Step, s)
	}
	config := &kserve.ModelConfig{Name: name}
	if ensembling.Step != nil {
		config.SchedulingChoice = &kserve.ModelConfig_EnsembleScheduling{EnsembleScheduling: ensembling}
	}
	return config
}

func TestDependenciesDecideWhetherAnEnsembleLoads(t *testing.T) {
	for _, c := range []struct {
		name, want string
		lines      []string // the first is the ensemble e
	}{
		{"all there", "", []string{"e =a b", "a READY", "b READY READY"}},
		{"a version", "", []string{"e =a:2 a:1", "a READY READY"}},
		{"missing", "ensemble e contains models that are not available or ambiguous: b", []string{"e =a b", "a READY"}},
		{"several missing", "ensemble e contains models that are not available or ambiguous: b, c", []string{"e =c a b c", "a READY"}},
		{"itself", "circular dependency between ensembles: e -> ... -> e -> e", []string{"e =e"}},
		{"a circle", "circular dependency between ensembles: e -> ... -> g -> e", []string{"e =f", "f =g", "g =e"}},
		{"above a circle", "ensemble 'e' depends on 'f' which has no loaded version.", []string{"e =f", "f =g", "g =f"}},
		{"not loaded", "ensemble 'e' depends on 'b' which has no loaded version. Model 'b' loading failed with error: version 1 is at UNAVAILABLE state: Internal: no;", []string{"e =a b", "a READY", "b UNAVAILABLE"}},
		{"without versions", "ensemble 'e' depends on 'b' which has no loaded version.", []string{"e =b", "b "}},
		{"another version", "ensemble 'e' depends on 'a' whose required version 3 is not loaded.", []string{"e =a:3", "a READY READY"}},
		{"a version that failed", "ensemble 'e' depends on 'a' whose required version 2 is not loaded.", []string{"e =a a:2", "a READY UNAVAILABLE"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := graphOf(t, false, c.lines...)
			err := k.Aim(repository.Identity{Name: "e"}, nil).Invalid
			if c.want == "" && err == nil {
				return
			}
			wantError(t, err, infer.InvalidArg, c.want)
		})
	}
	k := graphOf(t, false, "top =e", "e =bad", "bad UNAVAILABLE")
	e, top := repository.Identity{Name: "e"}, repository.Identity{Name: "top"}
	why := k.Aim(e, nil).Invalid
	k.Invalidate(e, why)
	wantError(t, k.Aim(top, nil).Invalid, infer.InvalidArg, "ensemble 'top' depends on 'e' which is not valid. Model 'e' failed with error: "+infer.AsError(why).Message)
}

func TestDependenciesStayInTheirNamespace(t *testing.T) {
	for _, c := range []struct {
		name, want string
		lines      []string
	}{
		{"a neighbour, of two", "", []string{"0::e =a", "0::a READY", "1::a READY"}},
		{"the only one, elsewhere", "", []string{"0::e =a", "1::a READY"}},
		{"nowhere", "ensemble ROOT::e contains models that are not available or ambiguous: a", []string{"0::e =a", "0::b READY"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := graphOf(t, true, c.lines...)
			err := k.Aim(repository.Identity{Namespace: k.roots[0], Name: "e"}, nil).Invalid
			if c.want == "" && err == nil {
				return
			}
			wantError(t, err, infer.InvalidArg, strings.ReplaceAll(c.want, "ROOT", k.roots[0]))
		})
	}
}

func TestDependentsAreTheEnsemblesAbove(t *testing.T) {
	k := graphOf(t, false, "a READY", "b READY", "e =a b", "f =b", "top =e waits", "apart =c", "c READY")
	for of, want := range map[string]string{
		"a": "e top", "b": "e f top", "e": "top", "waits": "top", "c": "apart", "top": "", "a c": "apart e top", "none": "",
	} {
		var got []string
		for _, id := range k.Dependents(ids(of)).Sorted() {
			got = append(got, id.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("above %s: got %q, want %q", of, got, want)
		}
	}
	sources := make(map[repository.Identity]*catalog.Source)
	for _, name := range []string{"a", "b", "c", "new", "f"} {
		id := repository.Identity{Name: name}
		sources[id] = k.sources[id]
	}
	if got, want := fmt.Sprint(k.Components(sources)), "[[a b f] [c] [new]]"; got != want {
		t.Errorf("components: got %s, want %s", got, want)
	}
}

func wantError(t *testing.T, err error, code infer.Code, text string) {
	t.Helper()
	if e := infer.AsError(err); e == nil || e.Code != code || e.Message != text {
		t.Errorf("got %v (%T), want %v: %q", err, err, code, text)
	}
}
