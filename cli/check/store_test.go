package check

import (
	"context"
	"flag"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid"
	"github.com/nereid-serving/nereid/cli/command"
	"github.com/nereid-serving/nereid/models/mirror/mirrortest"
	"github.com/nereid-serving/nereid/objects"
)

// sealed is a store that lets no one read some of its objects.
type sealed struct {
	objects.Bucket
	store *mirrortest.Store
	keys  []string
}

func (s sealed) Open(ctx context.Context, o objects.Object) (io.ReadCloser, error) {
	if slices.Contains(s.keys, o.Key) {
		return nil, s.store.Denial(o.Key)
	}
	return s.Bucket.Open(ctx, o)
}

// TestStoreTellsOfEachModel: what cannot be copied is a finding of that model, and the others are examined.
func TestStoreTellsOfEachModel(t *testing.T) {
	store := mirrortest.New()
	for key, text := range map[string]string{
		"badkey/config.pbtxt": two, "badkey/1/model.py": script, "badkey/1/../model.py": script,
		"chain/config.pbtxt": chain, "chain/1/": "",
		"chained/config.pbtxt": strings.ReplaceAll(chain, `"good"`, `"config"`), "chained/1/": "",
		"config/config.pbtxt": two, "config/1/model.py": script,
		"good/config.pbtxt": two, "good/1/model.py": script,
		"weights/config.pbtxt": two, "weights/1/model.py": script, "weights/1/w": "",
		"wrong/config.pbtxt": two + "max_batch_size: -1\n", "wrong/1/model.py": script,
	} {
		store.Put(key, text)
	}
	mounts := t.TempDir()
	var out, stderr strings.Builder
	status := Run([]string{"s3://bucket/models"}, func(own *flag.FlagSet, args []string) ([]string, nereid.Options, error) {
		names, err := command.Parse(own, args)
		o := nereid.Defaults()
		o.Repository.Mounts = map[string]string{"s3": mounts}
		o.Repository.Objects = func(ctx context.Context, at objects.Location) (objects.Bucket, error) {
			bucket, err := store.Opener(ctx, at)
			return sealed{bucket, store, []string{"config/config.pbtxt", "weights/1/w"}}, err
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
