package catalog_test

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/catalog"
	"github.com/nereid-serving/nereid/models/copies"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/version"
)

// plan has the versions that a load keeps, gives other instances, loads and unloads.
type plan struct{ keep, exchange, load, leave []int64 }

// owner ends versions at once.
type owner struct{ ended []int64 }

func (o *owner) End(_ repository.Identity, number int64, _ *version.Version) {
	o.ended = append(o.ended, number)
}

func (o *owner) Exiting() bool { return false }

// loaded is the result of a version that is up.
func loaded(number int64) catalog.Result {
	return catalog.Result{Number: number, Loaded: new(version.Version)}
}

// planned serves versions of a model from one source and loads it from another.
func planned(t *testing.T, was, now *catalog.Source, serving []int64) (p plan) {
	t.Helper()
	roots, err := repository.Open([]string{t.TempDir()}, repository.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer roots.Close()
	o, id := &owner{}, repository.Identity{Name: "m"}
	k := catalog.New(roots, o)
	load := func(s *catalog.Source, numbers []int64) (fresh []int64, before []*version.Version) {
		k.Want(map[repository.Identity]*catalog.Source{id: s}, nil, nil)
		fresh, before, _ = k.Begin(id, s)
		var results []catalog.Result
		for _, number := range numbers {
			results = append(results, loaded(number))
		}
		k.Commit(id, s, results)
		return fresh, before
	}
	if was != nil {
		load(was, serving)
	}
	o.ended = nil
	fresh, before := load(now, nil)
	for i, number := range fresh {
		if before[i] != nil {
			p.exchange = append(p.exchange, number)
		} else {
			p.load = append(p.load, number)
		}
	}
	for _, number := range now.Versions {
		if !slices.Contains(fresh, number) {
			p.keep = append(p.keep, number)
		}
	}
	slices.Sort(o.ended)
	p.leave = o.ended
	return p
}

// TestPlansFollowChanges compares the source of a serving model with its current source and
// checks which versions are kept, exchanged, loaded and unloaded.
func TestPlansFollowChanges(t *testing.T) {
	const base = `name: "m" backend: "fake" max_batch_size: 4 `
	const configFile = "config.pbtxt"
	files := func(parts ...string) repository.Footprint {
		p := repository.Footprint{Config: configFile, Parts: make(map[string]uint64)}
		for i := 0; i < len(parts); i += 2 {
			p.Parts[parts[i]] = uint64(parts[i+1][0])
		}
		return p
	}
	make1 := func(t *testing.T, config string, files repository.Footprint, versions ...int64) *catalog.Source {
		t.Helper()
		c := &kserve.ModelConfig{}
		if err := prototext.Unmarshal([]byte(config), c); err != nil {
			t.Fatal(err)
		}
		return &catalog.Source{Description: &repository.Description{Name: "m", Config: c, Versions: versions}, Files: files}
	}
	usual := files(configFile, "a", "1", "a", "2", "a", "labels", "a")
	for _, c := range []struct {
		name     string
		config   string
		files    repository.Footprint
		versions []int64
		serving  []int64
		want     plan
	}{
		{"nothing changed", base, usual, []int64{1, 2}, []int64{1, 2}, plan{keep: []int64{1, 2}}},
		{"the config was touched", base, files(configFile, "b", "1", "a", "2", "a", "labels", "a"), []int64{1, 2}, []int64{1, 2}, plan{keep: []int64{1, 2}}},
		{"a version's files", base, files(configFile, "a", "1", "a", "2", "b", "labels", "a"), []int64{1, 2}, []int64{1, 2}, plan{keep: []int64{1}, load: []int64{2}}},
		{"the files of all", base, files(configFile, "a", "1", "a", "2", "a", "labels", "b"), []int64{1, 2}, []int64{1, 2}, plan{load: []int64{1, 2}}},
		{"more files of all", base, files(configFile, "a", "1", "a", "2", "a", "labels", "a", "x", "a"), []int64{1, 2}, []int64{1, 2}, plan{load: []int64{1, 2}}},
		{"a file that begins like the config's name", base, files(configFile, "a", "1", "a", "2", "a", "labels", "a", "config", "a"), []int64{1, 2}, []int64{1, 2}, plan{load: []int64{1, 2}}},
		{"a version comes", base, files(configFile, "a", "1", "a", "2", "a", "3", "a", "labels", "a"), []int64{1, 2, 3}, []int64{1, 2}, plan{keep: []int64{1, 2}, load: []int64{3}}},
		{"a version goes", base, files(configFile, "a", "2", "a", "labels", "a"), []int64{2}, []int64{1, 2}, plan{keep: []int64{2}, leave: []int64{1}}},
		{"the policy", base + `version_policy { specific { versions: 1 } }`, usual, []int64{1}, []int64{1, 2}, plan{keep: []int64{1}, leave: []int64{2}}},
		{"the policy and files", base + `version_policy { specific { versions: 1 } }`, files(configFile, "a", "1", "b", "2", "a", "labels", "a"), []int64{1}, []int64{1, 2}, plan{load: []int64{1}, leave: []int64{2}}},
		{"instances", base + `instance_group { count: 2 }`, usual, []int64{1, 2}, []int64{1, 2}, plan{exchange: []int64{1, 2}}},
		{"instances and policy", base + `instance_group { count: 2 } version_policy { all { } }`, usual, []int64{1, 2}, []int64{1, 2}, plan{exchange: []int64{1, 2}}},
		{"instances and a version's files", base + `instance_group { count: 2 }`, files(configFile, "b", "1", "b", "2", "a", "labels", "a"), []int64{1, 2}, []int64{1, 2}, plan{exchange: []int64{2}, load: []int64{1}}},
		{"instances and a version that comes", base + `instance_group { count: 2 }`, files(configFile, "b", "1", "a", "2", "a", "3", "a", "labels", "a"), []int64{2, 3}, []int64{1, 2}, plan{exchange: []int64{2}, load: []int64{3}, leave: []int64{1}}},
		{"another field", base + `default_model_filename: "x"`, usual, []int64{1, 2}, []int64{1, 2}, plan{load: []int64{1, 2}}},
		{"another field, and instances", base + `default_model_filename: "x" instance_group { count: 2 }`, usual, []int64{1, 2}, []int64{1, 2}, plan{load: []int64{1, 2}}},
		{"one had failed", base, usual, []int64{1, 2}, []int64{1}, plan{keep: []int64{1}, load: []int64{2}}},
		{"none was served", base, usual, []int64{1, 2}, nil, plan{load: []int64{1, 2}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var was *catalog.Source
			if c.serving != nil {
				was = make1(t, base, usual, 1, 2)
			}
			if got := planned(t, was, make1(t, c.config, c.files, c.versions...), c.serving); fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
	uploaded := make1(t, base, repository.Footprint{}, 1)
	uploaded.Upload = &copies.Copy{}
	for name, pair := range map[string][2]*catalog.Source{
		"from files of a request": {make1(t, base, usual, 1), uploaded}, "to the repository's": {uploaded, make1(t, base, usual, 1)},
		"from files to others": {uploaded, uploaded},
	} {
		if got, want := planned(t, pair[0], pair[1], []int64{1}), (plan{load: []int64{1}}); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
}
