package repository_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models/repository"
)

func TestOpenRejectsNonDirectories(t *testing.T) {
	root := testkit.WriteFiles(t, t.TempDir(), map[string]string{"a/m/1/model.py": "", "file": ""})
	a := filepath.Join(root, "a")
	for _, c := range []struct {
		name  string
		roots []string
		open  int
		want  string
	}{
		{"one", []string{a}, 1, ""},
		{"the same twice", []string{a, a + "/", root + "/./a"}, 1, ""},
		{"none", nil, 0, ""},
		{"missing", []string{a, root + "/none"}, 0, "Internal: failed to stat file " + root + "/none"},
		{"empty", []string{""}, 0, "Internal: failed to stat file "},
		{"bucket", []string{a, "s3://bucket/models"}, 0, "Internal: s3:// file-system not supported. To enable, build with -DTRITON_ENABLE_S3=ON. (Triton supports that; this server only reads directories: copy s3://bucket/models into one first.)"},
		{"file", []string{root + "/file"}, 0, "Invalid argument: repository path is not a valid directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			repository, err := repository.Open(c.roots, repository.Options{})
			if err != nil {
				if got := infer.AsError(err).Status(); got != c.want {
					t.Errorf("got error %q, want %q", got, c.want)
				}
				return
			}
			defer repository.Close()
			if c.want != "" || len(repository.All()) != c.open {
				t.Errorf("got %d roots, want %d and error %q", len(repository.All()), c.open, c.want)
			}
		})
	}
}

// TestScanPassesOverFoldersOfTools checks that a scan ignores folders that tools create in a
// repository. A hidden folder that looks like a model is a model, as in Triton.
func TestScanPassesOverFoldersOfTools(t *testing.T) {
	root := testkit.WriteFiles(t, t.TempDir(), map[string]string{
		".git/HEAD": "", ".git/objects/00/": "", ".ipynb_checkpoints/": "", "__pycache__/1/": "", "..2024_11_23/m/config.pbtxt": "",
		".versioned/1/": "", ".configured/config.pbtxt": "", "model/1/": "", "notebooks/a.ipynb": "", "_x/": "",
	})
	if err := os.Symlink("..2024_11_23/m", filepath.Join(root, "m")); err != nil { // as in a Kubernetes volume
		t.Fatal(err)
	}
	repository, err := repository.Open([]string{root}, repository.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer repository.Close()
	names, _, err := scan(repository)
	if want := []string{".configured", ".versioned", "_x", "m", "model", "notebooks"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("got %q, %v, want %q", names, err, want)
	}
}

func TestScanFindsModelsOnce(t *testing.T) {
	root := testkit.WriteFiles(t, t.TempDir(), map[string]string{
		"a/both/1/": "", "a/only_a/1/": "", "a/.hidden/1/": "", "a/empty/": "", "a/file": "", "elsewhere/1/": "",
		"b/both/1/": "", "b/only_b/1/": "", "b/file": "",
	})
	links := map[string]string{
		"a/linked": "../elsewhere", "a/dangling": "nowhere", "a/to_file": "file", "b/inner": "only_b",
	}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(root, "a", "no\xffname"), 0o755); err != nil {
		t.Fatal(err)
	}
	opened, err := repository.Open([]string{root + "/a", root + "/b"}, repository.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	names, rejected, err := scan(opened)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{".hidden", "both", "empty", "inner", "linked", "only_a", "only_b"}; !slices.Equal(names, want) {
		t.Errorf("names: got %q, want %q", names, want)
	}
	if want := map[repository.Identity]string{{Name: "both"}: "model appears in two or more repositories"}; !maps.Equal(rejected, want) {
		t.Errorf("rejected: got %q, want %q", rejected, want)
	}
	for name, want := range map[string]string{
		"both":      "Internal: failed to poll model 'both': not unique across all model repositories",
		"nope":      "Not found: failed to poll model 'nope': model not found in any model repository.",
		"dangling":  "Not found: failed to poll model 'dangling': model not found in any model repository.",
		"file":      "Not found: failed to poll model 'file': model not found in any model repository.",
		"to_file":   "Not found: failed to poll model 'to_file': model not found in any model repository.",
		"":          "Not found: failed to poll model '': model not found in any model repository.",
		".":         "Not found: failed to poll model '.': model not found in any model repository.",
		"..":        "Not found: failed to poll model '..': model not found in any model repository.",
		"only_a/..": "Not found: failed to poll model 'only_a/..': model not found in any model repository.",
		"../b":      "Not found: failed to poll model '../b': model not found in any model repository.",
	} {
		if _, err := repository.ReadModel(opened, name); err == nil || infer.AsError(err).Status() != want {
			t.Errorf("Read(%q): got error %v, want %q", name, err, want)
		}
	}
	// A second scan sees removed and new models.
	if err := os.RemoveAll(root + "/b/both"); err != nil {
		t.Fatal(err)
	}
	testkit.WriteFiles(t, root, map[string]string{"b/new/1/model.py": ""})
	if names, rejected, err = scan(opened); err != nil || len(rejected) != 0 || !slices.Contains(names, "new") {
		t.Errorf("second scan: got %q, rejected %q, error %v", names, rejected, err)
	}
}

func scan(r *repository.Roots) (names []string, rejected map[repository.Identity]string, err error) {
	ids, rejected, err := r.Scan()
	for _, id := range ids {
		names = append(names, id.String())
	}
	return names, rejected, err
}

// TestReadFollowsLinks reads models whose directories and files are links, and checks that file
// links out of the repository are rejected.
func TestReadFollowsLinks(t *testing.T) {
	root := t.TempDir()
	const config = `backend: "python" max_batch_size: 7`
	testkit.WriteFiles(t, root, map[string]string{
		"outside/model/config.pbtxt": config, "outside/model/1/model.py": "", "outside/config.pbtxt": config,
		"outside/version/model.py": "", "repository/shared/config.pbtxt": config,
	})
	opened := filepath.Join(root, "repository")
	for name, target := range map[string]string{
		"relative":                "../outside/model",
		"absolute":                filepath.Join(root, "outside/model"),
		"version/3":               filepath.Join(root, "outside/version"),
		"config/config.pbtxt":     "../shared/config.pbtxt",
		"escaping/config.pbtxt":   "../../outside/config.pbtxt",
		"elsewhere/config.pbtxt":  filepath.Join(root, "outside/config.pbtxt"),
		"dangling/config.pbtxt":   "nowhere",
		"mounted/config.pbtxt":    "..data/config.pbtxt",
		"mounted/..data":          "..2026",
		"outside_labels/l.txt":    "../../outside/config.pbtxt",
		"within/configs/v2.pbtxt": "../../shared/config.pbtxt",
	} {
		path := filepath.Join(opened, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
	}
	testkit.WriteFiles(t, opened, map[string]string{
		"config/1/model.py": "", "escaping/1/model.py": "", "elsewhere/1/model.py": "", "dangling/1/model.py": "",
		"mounted/1/model.py": "", "mounted/..2026/config.pbtxt": config, "within/1/model.py": "",
		"outside_labels/1/model.py":   "",
		"outside_labels/config.pbtxt": `output { name: "O" data_type: TYPE_FP32 dims: 1 label_filename: "l.txt" }`,
	})
	r, err := repository.Open([]string{opened}, repository.Options{ConfigName: "v2"})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, c := range []struct {
		name     string
		batch    int32
		versions []int64
		refused  string // the error of Read or Finish
	}{
		{name: "relative", batch: 7, versions: []int64{1}},
		{name: "absolute", batch: 7, versions: []int64{1}},
		{name: "version", versions: []int64{3}},
		{name: "config", batch: 7, versions: []int64{1}},
		{name: "mounted", batch: 7, versions: []int64{1}},
		{name: "within", batch: 7, versions: []int64{1}},
		{name: "dangling", versions: []int64{1}},
		{name: "escaping", refused: "failed to open text file for read ROOT/escaping/config.pbtxt: path escapes from parent"},
		{name: "elsewhere", refused: "failed to open text file for read ROOT/elsewhere/config.pbtxt: path escapes from parent"},
		{name: "outside_labels", versions: []int64{1}, refused: "failed to open text file for read ROOT/outside_labels/l.txt: path escapes from parent"},
	} {
		t.Run(c.name, func(t *testing.T) {
			refused := ""
			d, err := repository.ReadModel(r, c.name)
			if err == nil {
				if !slices.Equal(d.Versions, c.versions) || d.Config.MaxBatchSize != c.batch {
					t.Errorf("got versions %d, max_batch_size %d, want %d, %d", d.Versions, d.Config.MaxBatchSize, c.versions, c.batch)
				}
				if want := filepath.Join(opened, c.name); d.Directory != want {
					t.Errorf("directory: got %s, want %s", d.Directory, want)
				}
				_, _, _, err = d.Finish(nil, nil)
			}
			if err != nil {
				refused = strings.ReplaceAll(infer.AsError(err).Detailed().Message, opened, "ROOT")
			}
			if refused != c.refused {
				t.Errorf("got error %q, want %q", refused, c.refused)
			}
		})
	}
}

// TestReadTakesTheDescribingFile checks which file is read as the config, and the errors if it
// cannot be used.
func TestReadTakesTheDescribingFile(t *testing.T) {
	files := map[string]string{
		"plain/config.pbtxt": `max_batch_size: 1`, "plain/1/model.py": "",
		"two/config.pbtxt": `max_batch_size: 1`, "two/configs/v2.pbtxt": `max_batch_size: 2`, "two/1/model.py": "",
		"none/1/model.py":     "",
		"broken/config.pbtxt": "max_batch_size: 1\nfoo: 1", "broken/1/model.py": "",
		"directory/config.pbtxt/x": "", "directory/1/model.py": "",
		"incomplete/config.pbtxt": `backend: "python" input { name: "I" }`, "incomplete/1/model.py": "",
		"misnamed/config.pbtxt": `name: "other"`, "misnamed/1/model.py": "",
		"pipe/1/model.py": "",
	}
	root := testkit.WriteFiles(t, t.TempDir(), files)
	if err := syscall.Mkfifo(filepath.Join(root, "pipe/config.pbtxt"), 0o600); err != nil {
		t.Fatal(err)
	}
	strict := repository.Options{DisableAutoComplete: true}
	named := repository.Options{ConfigName: "v2"}
	for _, c := range []struct {
		name, model string
		options     repository.Options
		batch       int32
		refused     string
	}{
		{"ordinary", "plain", repository.Options{}, 1, ""},
		{"another is there", "two", repository.Options{}, 1, ""},
		{"another is asked for", "two", named, 2, ""},
		{"another is missing", "plain", named, 1, ""},
		{"another, outside", "two", repository.Options{ConfigName: "../../../v2"}, 0, "failed to open text file for read ROOT/two/../../v2.pbtxt: path escapes from parent"},
		{"none", "none", repository.Options{}, 0, ""},
		{"none, strict", "none", strict, 0, "failed to open text file for read ROOT/none/config.pbtxt: No such file or directory"},
		{"none, strict, named", "none", repository.Options{ConfigName: "v2", DisableAutoComplete: true}, 0, "failed to open text file for read ROOT/none/config.pbtxt: No such file or directory"},
		{"broken", "broken", repository.Options{}, 0, "failed to read text proto from ROOT/broken/config.pbtxt"},
		{"a directory", "directory", repository.Options{}, 0, "failed to open text file for read ROOT/directory/config.pbtxt: Is a directory"},
		{"a pipe", "pipe", repository.Options{}, 0, "failed to open text file for read ROOT/pipe/config.pbtxt: not a regular file (p---------)"},
		{"incomplete", "incomplete", repository.Options{}, 0, ""},
		{"incomplete, strict", "incomplete", strict, 0, "model input 'I' must specify 'data_type' for incomplete"},
		{"misnamed", "misnamed", repository.Options{}, 0, "unexpected directory name 'misnamed' for model 'other', directory name must equal model name"},
	} {
		t.Run(c.name, func(t *testing.T) {
			opened, err := repository.Open([]string{root}, c.options)
			if err != nil {
				t.Fatal(err)
			}
			defer opened.Close()
			d, err := repository.ReadModel(opened, c.model)
			if err != nil {
				if got := strings.ReplaceAll(infer.AsError(err).Detailed().Message, root, "ROOT"); got != c.refused {
					t.Errorf("got error %q, want %q", got, c.refused)
				}
				return
			}
			if c.refused != "" || d.Config.MaxBatchSize != c.batch {
				t.Errorf("got max_batch_size %d, want %d and error %q", d.Config.MaxBatchSize, c.batch, c.refused)
			}
		})
	}
}

// TestVersionsFollowThePolicy reads one directory with many names under several version policies.
func TestVersionsFollowThePolicy(t *testing.T) {
	files := make(map[string]string)
	for _, name := range []string{
		"0", "2", "10", "9223372036854775807", "01", "00", "0x1", "abc", "3y", "-1", "+1", "1.5", "9223372036854775808",
		".git", "configs", "warmup", "initial_state",
	} {
		files["m/"+name+"/"] = ""
	}
	files["m/1"] = "a file"
	var ignored []string
	for _, name := range []string{"+1", "-1", ".git", "00", "01", "0x1", "1.5", "3y", "9223372036854775808", "abc"} {
		reason := "fails to convert to integral number"
		if name[0] == '0' {
			reason = "contains leading zeros in its directory name"
		}
		ignored = append(ignored, "ignore version directory '"+name+"' which "+reason)
	}
	for _, c := range []struct {
		name, policy string
		want         []int64
		missing      []string
	}{
		{"default", ``, []int64{9223372036854775807}, nil},
		{"latest", `version_policy { latest { num_versions: 2 } }`, []int64{10, 9223372036854775807}, nil},
		{"latest of more than there are", `version_policy { latest { num_versions: 4294967295 } }`, []int64{0, 2, 10, 9223372036854775807}, nil},
		{"latest of none", `version_policy { latest { } }`, nil, nil},
		{"all", `version_policy { all { } }`, []int64{0, 2, 10, 9223372036854775807}, nil},
		{"no choice", `version_policy { }`, []int64{0, 2, 10, 9223372036854775807}, nil},
		{"specific", `version_policy { specific { versions: [ 7, 10, 2, 2, -3 ] } }`, []int64{2, 10}, []string{
			"version 7 is specified for model 'm', but the version directory is not present",
			"version -3 is specified for model 'm', but the version directory is not present",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			files["m/config.pbtxt"] = `backend: "python" ` + c.policy
			d, err := repository.ReadModel(repository.OpenRepository(t, repository.Options{}, files), "m")
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(d.Versions, c.want) {
				t.Errorf("versions: got %d, want %d", d.Versions, c.want)
			}
			if want := slices.Concat(ignored, c.missing); !slices.Equal(d.Warnings, want) {
				t.Errorf("warnings:\n got %q\nwant %q", d.Warnings, want)
			}
			if err := d.Check(); (err == nil) != (len(c.want) > 0) {
				t.Errorf("Check: got error %v with %d versions", err, len(c.want))
			}
		})
	}
}
