package check_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nereid-serving/nereid"
	"github.com/nereid-serving/nereid/cli/check"
	"github.com/nereid-serving/nereid/cli/command"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models/mirror/mirrortest"
	"github.com/nereid-serving/nereid/objectstore"
)

// deniedBucket is a bucket in which some objects cannot be read.
type deniedBucket struct {
	objectstore.Bucket
	store *mirrortest.Store
	keys  []string
}

func (s deniedBucket) Open(ctx context.Context, o objectstore.Object) (io.ReadCloser, error) {
	if slices.Contains(s.keys, o.Key) {
		return nil, s.store.Denial(o.Key)
	}
	return s.Bucket.Open(ctx, o)
}

// TestStoreTellsOfEachModel checks that a failed copy is a finding of its model, and that the other
// models are still checked.
func TestStoreTellsOfEachModel(t *testing.T) {
	store := mirrortest.New()
	for key, text := range map[string]string{
		"badkey/config.pbtxt": check.Two, "badkey/1/model.py": check.Script, "badkey/1/../model.py": check.Script,
		"chain/config.pbtxt": check.Chain, "chain/1/": "",
		"chained/config.pbtxt": strings.ReplaceAll(check.Chain, `"good"`, `"config"`), "chained/1/": "",
		"config/config.pbtxt": check.Two, "config/1/model.py": check.Script,
		"good/config.pbtxt": check.Two, "good/1/model.py": check.Script,
		"weights/config.pbtxt": check.Two, "weights/1/model.py": check.Script, "weights/1/w": "",
		"wrong/config.pbtxt": check.Two + "max_batch_size: -1\n", "wrong/1/model.py": check.Script,
	} {
		store.Put(key, text)
	}
	mounts := t.TempDir()
	var out, stderr strings.Builder
	status := check.Run([]string{"s3://bucket/models"}, func(own *flag.FlagSet, args []string) ([]string, nereid.Options, error) {
		names, err := command.Parse(own, args)
		o := nereid.Defaults()
		o.Repository.Mounts = map[string]string{"s3": mounts}
		o.Repository.Objects = func(ctx context.Context, at objectstore.Location) (objectstore.Bucket, error) {
			bucket, err := store.Opener(ctx, at)
			return deniedBucket{bucket, store, []string{"config/config.pbtxt", "weights/1/w"}}, err
		}
		return names, o, err
	}, &out, &stderr)
	const denied = ": error: Failed to get object at s3://bucket/models/%s due to exception: AccessDenied, error message: no"
	want := []string{
		"s3://bucket/models/badkey: error: ",
		"s3://bucket/models/config" + strings.Replace(denied, "%s", "config/config.pbtxt", 1),
		"s3://bucket/models/weights" + strings.Replace(denied, "%s", "weights/1/w", 1),
		"s3://bucket/models/wrong/config.pbtxt:4: error: 'max_batch_size' must be non-negative value for wrong",
		"7 models: 4 errors, ",
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		if !strings.Contains(line, "warning: ") {
			got = append(got, line)
		}
	}
	if status != command.StatusTrouble || stderr.String() != "" || !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("got status %d, %s\n%swant these lines to begin\n%s", status, stderr.String(), out.String(), strings.Join(want, "\n"))
	}
}

// checkStore runs the command with a fake object store.
func checkStore(open objectstore.Opener, args ...string) (status int, stdout, stderr string) {
	var out, errs strings.Builder
	status = check.Run(args, func(own *flag.FlagSet, args []string) ([]string, nereid.Options, error) {
		names, err := command.Parse(own, args)
		o := nereid.Defaults()
		o.Repository.Objects = open
		return names, o, err
	}, &out, &errs)
	return status, out.String(), errs.String()
}

// TestStoreOfOneModel checks that the error for the URL of a model or of a version names the
// repository to use.
func TestStoreOfOneModel(t *testing.T) {
	for _, test := range []struct {
		url, key, want string
	}{
		{"s3://bucket/models/greeter", "config.pbtxt", "s3://bucket/models/greeter is a model: want its repository, which is s3://bucket/models\n"},
		{"s3://bucket/greeter/", "1/model.py", "s3://bucket/greeter/ is a model: want its repository, which is s3://bucket\n"},
		{"s3://bucket", "config.pbtxt", "s3://bucket is a model: move it into a folder of the bucket, and name that folder\n"},
		{"s3://bucket/models/greeter/1", "model.py", "s3://bucket/models/greeter/1 is a version directory: want the repository, which is two levels above it\n"},
		{"as://account/container/greeter?sig=SECRET", "config.pbtxt", "as://account/container/greeter?… is a model: want its repository, which is as://account/container\n"},
	} {
		store := mirrortest.New()
		store.Put(test.key, check.Two)
		store.Put("1/w", "")
		if status, _, stderr := checkStore(store.Opener, test.url); status != command.StatusUsage || !strings.Contains(stderr, test.want) {
			t.Errorf("%s: got status %d, %s; want %s", test.url, status, stderr, test.want)
		}
	}
}

// TestStoreHasNoSuchModel checks that the error names the store, without secrets from its URL and
// without paths of copies.
func TestStoreHasNoSuchModel(t *testing.T) {
	store := mirrortest.New()
	store.Put("greeter/config.pbtxt", check.Two)
	store.Put("greeter/1/model.py", check.Script)
	status, _, stderr := checkStore(store.Opener, "as://account/container/models?sig=SECRET", "--model=greater")
	const want = "--model is \"greater\", but it is not in as://account/container/models?…; did you mean greeter?\n"
	if status != command.StatusUsage || !strings.Contains(stderr, want) {
		t.Errorf("got status %d, %s; want %s", status, stderr, want)
	}
}

// TestStoreHasEnvironmentsBesideModels checks that environments in the store are fetched with the
// models, and that a missing one is a finding of its model.
func TestStoreHasEnvironmentsBesideModels(t *testing.T) {
	in := func(value string) string {
		return check.Two + "parameters { key: \"EXECUTION_ENV_PATH\" value { string_value: \"" + value + "\" } }\n"
	}
	store := mirrortest.New()
	for key, text := range map[string]string{
		"beside/config.pbtxt": in("$$TRITON_MODEL_DIRECTORY/../envs/env.tar.gz"), "beside/1/model.py": check.Script,
		"again/config.pbtxt": in("$$TRITON_MODEL_DIRECTORY/../env.tar.gz"), "again/1/model.py": check.Script,
		"absent/config.pbtxt": in("$$TRITON_MODEL_DIRECTORY/../envs/none.tar.gz"), "absent/1/model.py": check.Script,
		"url/config.pbtxt": in("s3://bucket/models/envs.tar.gz"), "url/1/model.py": check.Script,
		"env.tar.gz": "\x1f\x8bpacked", "envs/env.tar.gz": "\x1f\x8bpacked", "envs.tar.gz": "\x1f\x8bpacked",
	} {
		store.Put(key, text)
	}
	mounts := t.TempDir()
	var out, stderr strings.Builder
	status := check.Run([]string{"s3://bucket/models"}, func(own *flag.FlagSet, args []string) ([]string, nereid.Options, error) {
		names, err := command.Parse(own, args)
		o := nereid.Defaults()
		o.Repository.Mounts = map[string]string{"s3": mounts}
		o.Repository.Objects = func(ctx context.Context, at objectstore.Location) (objectstore.Bucket, error) {
			bucket, err := store.Opener(ctx, at)
			return prefixedBucket{bucket, strings.TrimPrefix(strings.TrimPrefix(at.Path, "models"), "/")}, err
		}
		return names, o, err
	}, &out, &stderr)
	if n := strings.Count(out.String(), ": error: "); status != command.StatusTrouble || n != 2 ||
		!strings.Contains(out.String(), "s3://bucket/models/absent/config.pbtxt: error: directory or file does not exist at s3://bucket/models/envs/none.tar.gz") ||
		!strings.Contains(out.String(), "s3://bucket/models/envs: error: ") { // a folder in a repository is a model
		t.Errorf("got status %d, %s\n%s", status, stderr.String(), out.String())
	}
	if left, err := os.ReadDir(mounts); err != nil || len(left) > 0 {
		t.Errorf("%v are left, %v", left, err)
	}
}

// TestModelsNameStoresInVain checks that a static check of a directory contacts no store, and that
// an endpoint named only by a model does not count as named by the operator.
func TestModelsNameStoresInVain(t *testing.T) {
	in := func(endpoint string) string {
		return check.Two + "parameters { key: \"EXECUTION_ENV_PATH\" value { string_value: \"s3://" + endpoint + "/bucket/env.tar.gz\" } }\n"
	}
	store := mirrortest.New()
	directory := t.TempDir()
	files := map[string]string{
		"far/config.pbtxt": in("http://evil:9000"), "far/1/model.py": check.Script,
		"near/config.pbtxt": in("http://host:9000"), "near/1/model.py": check.Script,
		"wrong/config.pbtxt": in("http://evil"), "wrong/1/model.py": check.Script,
	}
	testkit.WriteFiles(t, directory, files)
	for key, text := range files {
		store.Put(key, text)
	}
	var mu sync.Mutex
	var asked []string
	check := func(args ...string) string {
		var out, stderr strings.Builder
		check.Run(args, func(own *flag.FlagSet, args []string) ([]string, nereid.Options, error) {
			names, err := command.Parse(own, args)
			o := nereid.Defaults()
			o.Repository.Objects = func(ctx context.Context, at objectstore.Location) (objectstore.Bucket, error) {
				mu.Lock()
				asked = append(asked, fmt.Sprintf("%s %v", at.Endpoint, at.Named))
				mu.Unlock()
				return store.Opener(ctx, at)
			}
			return names, o, err
		}, &out, &stderr)
		return out.String() + stderr.String()
	}
	text := check(directory)
	if !strings.Contains(text, "wrong/config.pbtxt: error: Invalid bucket name") || !strings.Contains(text, "3 models: 1 error") || len(asked) > 0 {
		t.Errorf("a directory: got %s, asked %q", text, asked)
	}
	check(directory, "--import")
	if slices.Sort(asked); !slices.Equal(slices.Compact(asked), []string{"http://evil:9000 false", "http://host:9000 false"}) {
		t.Errorf("a directory that is imported: asked %q", asked)
	}
	asked = nil
	check("s3://http://host:9000/bucket/models", "--import")
	if slices.Sort(asked); !slices.Equal(slices.Compact(asked), []string{"http://evil:9000 false", "http://host:9000 true"}) {
		t.Errorf("a repository in a store: asked %q", asked)
	}
}

// prefixedBucket is a directory of a bucket, whose keys are relative to that directory.
type prefixedBucket struct {
	objectstore.Bucket
	directory string
}

func (b prefixedBucket) key(name string) string { return strings.TrimPrefix(b.directory+"/"+name, "/") }

// List implements objectstore.Bucket.
func (b prefixedBucket) List(ctx context.Context, prefix string, each func(objectstore.Object) error) error {
	return b.Bucket.List(ctx, b.key(prefix), func(o objectstore.Object) error {
		o.Key = strings.TrimPrefix(strings.TrimPrefix(o.Key, b.directory), "/")
		return each(o)
	})
}

// Open implements objectstore.Bucket.
func (b prefixedBucket) Open(ctx context.Context, o objectstore.Object) (io.ReadCloser, error) {
	o.Key = b.key(o.Key)
	return b.Bucket.Open(ctx, o)
}

// TestStoreTellsOfWrongSums checks that a wrong checksum of a configuration or another file is
// reported with its model, and that the other models are still checked.
func TestStoreTellsOfWrongSums(t *testing.T) {
	store := mirrortest.New()
	for key, text := range map[string]string{
		"config/config.pbtxt": check.Two, "config/1/model.py": check.Script,
		"good/config.pbtxt": check.Two, "good/1/model.py": check.Script,
		"weights/config.pbtxt": check.Two, "weights/1/model.py": check.Script, "weights/1/w": "",
	} {
		store.Put(key, text)
	}
	mounts := t.TempDir()
	var out, stderr strings.Builder
	status := check.Run([]string{"s3://bucket/models"}, func(own *flag.FlagSet, args []string) ([]string, nereid.Options, error) {
		names, err := command.Parse(own, args)
		o := nereid.Defaults()
		o.Repository.Mounts = map[string]string{"s3": mounts}
		o.Repository.Objects = mirrortest.WithSums(store.Opener, func(key string) bool { return key == "config/config.pbtxt" || key == "weights/1/w" })
		return names, o, err
	}, &out, &stderr)
	const differ = ": error: Failed to get object at s3://bucket/models/%s due to exception: ChecksumMismatch, error message: "
	for _, want := range []string{
		"s3://bucket/models/config" + strings.Replace(differ, "%s", "config/config.pbtxt", 1),
		"s3://bucket/models/weights" + strings.Replace(differ, "%s", "weights/1/w", 1),
		"3 models: 2 errors, ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got status %d, %s\n%swant %s", status, stderr.String(), out.String(), want)
		}
	}
}
