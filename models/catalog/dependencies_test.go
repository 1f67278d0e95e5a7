package catalog

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/repository"
)

// graphOf returns a catalog of models without loading them. Each line is a model: its name, the
// states of its versions, and for an ensemble its composing models, as "name" or "name:version".
func graphOf(t *testing.T, namespaces bool, lines ...string) *Catalog {
	t.Helper()
	roots := []string{t.TempDir(), t.TempDir()}
	opened, err := repository.Open(roots, repository.Options{Namespacing: namespaces})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(opened.Close)
	k := New(opened, nil)
	for _, line := range lines {
		name, rest, _ := strings.Cut(line, " ")
		id := repository.Identity{Name: name}
		if at, inner, ok := strings.Cut(name, "::"); ok {
			id = repository.Identity{Namespace: roots[at[0]-'0'], Name: inner}
		}
		m := k.modelLocked(id)
		config := &kserve.ModelConfig{Name: id.Name}
		states, steps, _ := strings.Cut(rest, "=")
		for i, state := range strings.Fields(states) {
			number := int64(i + 1)
			m.versions[number] = &entry{number: number, state: State(state)}
		}
		for step := range strings.FieldsSeq(steps) {
			model, number, pinned := strings.Cut(step, ":")
			s := &kserve.ModelEnsembling_Step{ModelName: model, ModelVersion: -1}
			if pinned {
				s.ModelVersion = int64(number[0] - '0')
			}
			if config.GetEnsembleScheduling() == nil {
				config.SchedulingChoice = &kserve.ModelConfig_EnsembleScheduling{EnsembleScheduling: &kserve.ModelEnsembling{}}
			}
			config.GetEnsembleScheduling().Step = append(config.GetEnsembleScheduling().Step, s)
		}
		m.wanted = &Source{Description: &repository.Description{Name: id.Name, Namespace: id.Namespace, Config: config}}
	}
	return k
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
		{"not loaded", "ensemble 'e' depends on 'b' which has no loaded version.", []string{"e =a b", "a READY", "b UNAVAILABLE"}},
		{"without versions", "ensemble 'e' depends on 'b' which has no loaded version.", []string{"e =b", "b "}},
		{"another version", "ensemble 'e' depends on 'a' whose required version 3 is not loaded.", []string{"e =a:3", "a READY READY"}},
		{"a version that failed", "ensemble 'e' depends on 'a' whose required version 2 is not loaded.", []string{"e =a a:2", "a READY UNAVAILABLE"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := graphOf(t, false, c.lines...)
			err := k.checkDependenciesLocked(k.models[repository.Identity{Name: "e"}])
			if c.want == "" && err == nil {
				return
			}
			wantError(t, err, infer.InvalidArg, c.want)
		})
	}
	k := graphOf(t, false, "top =e", "e =bad", "bad UNAVAILABLE")
	e, top, bad := k.models[repository.Identity{Name: "e"}], k.models[repository.Identity{Name: "top"}], k.models[repository.Identity{Name: "bad"}]
	bad.failure = "version 1 is at UNAVAILABLE state: Internal: no;"
	e.invalid = k.checkDependenciesLocked(e)
	const why = "ensemble 'e' depends on 'bad' which has no loaded version. Model 'bad' loading failed with error: version 1 is at UNAVAILABLE state: Internal: no;"
	wantError(t, e.invalid, infer.InvalidArg, why)
	wantError(t, k.checkDependenciesLocked(top), infer.InvalidArg, "ensemble 'top' depends on 'e' which is not valid. Model 'e' failed with error: "+why)
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
			root := k.roots.Namespaces()[0]
			err := k.checkDependenciesLocked(k.models[repository.Identity{Namespace: root, Name: "e"}])
			if c.want == "" && err == nil {
				return
			}
			wantError(t, err, infer.InvalidArg, strings.ReplaceAll(c.want, "ROOT", root))
		})
	}
}

func TestDependentsAreTheEnsemblesAbove(t *testing.T) {
	k := graphOf(t, false, "a READY", "b READY", "e =a b", "f =b", "top =e waits", "apart =c", "c READY")
	for of, want := range map[string]string{
		"a": "e top", "b": "e f top", "e": "top", "waits": "top", "c": "apart", "top": "", "a c": "apart e top", "none": "",
	} {
		var got []string
		for _, id := range k.Dependents(Ids(of)).Sorted() {
			got = append(got, id.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("above %s: got %q, want %q", of, got, want)
		}
	}
	sources := make(map[repository.Identity]*Source)
	for _, name := range []string{"a", "b", "c", "new", "f"} {
		id := repository.Identity{Name: name}
		sources[id] = nil
		if m := k.models[id]; m != nil {
			sources[id] = m.wanted
		}
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
