package mirror

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models/copies"
	"github.com/nereid-serving/nereid/models/mirror/mirrortest"
	"github.com/nereid-serving/nereid/objectstore"
)

// world is a mirror of a store in memory.
type world struct {
	*testing.T
	store  *mirrortest.Store
	mirror *Mirror
	place  string
	log    testkit.Buffer
}

// newWorld opens a mirror of a store whose objects have these keys and their keys as content.
func newWorld(t *testing.T, change func(*Config), keys ...string) *world {
	t.Helper()
	w := &world{T: t, store: mirrortest.New(), place: t.TempDir()}
	for _, key := range keys {
		w.store.Put(key, key)
	}
	location, _, err := objectstore.Parse("s3://bucket/models")
	if err != nil {
		t.Fatal(err)
	}
	place := copies.NewWorkspace(w.place, zerolog.Nop())
	config := Config{Location: location, Open: w.store.Opener, Workspace: place, Variable: "MOUNT", Texts: []string{"config.pbtxt"}, Log: zerolog.New(&w.log)}
	if change != nil {
		change(&config)
	}
	w.mirror, err = Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.mirror.Close()
		place.Close()
		if !w.store.Closed() {
			t.Error("the bucket is not closed")
		}
		if left := testkit.Tree(t, w.place); left != "" {
			t.Errorf("%s is left", left)
		}
	})
	return w
}

// copyOf copies a model of the last listing.
func (w *world) copyOf(name string) (*copies.Copy, error) {
	w.Helper()
	return w.mirror.Copy(w.Context(), w.mirror.Model(name), func(string) bool { return true })
}

func (w *world) mustCopy(name string) *copies.Copy {
	w.Helper()
	c, err := w.copyOf(name)
	if err != nil {
		w.Fatal(err)
	}
	return c
}

// renew lists the store again and waits for the listing.
func (w *world) renew() {
	w.Helper()
	w.mirror.Renew(0)
	w.mirror.renewals.Wait()
}

func TestModelsOfAListing(t *testing.T) {
	w := newWorld(t, nil, "a/config.pbtxt", "a/1/model.py", "a/1/deep/er", "a-b/1/", "b/1/model.py", "README", "empty/")
	if got := strings.Join(w.mirror.Models(), " "); got != "a a-b b empty" {
		t.Errorf("got the models %s, want a a-b b empty", got)
	}
	a := w.mirror.Model("a")
	if string(a.Text) != "a/config.pbtxt" || a.TextName != "config.pbtxt" {
		t.Errorf("got the configuration %q of %q", a.Text, a.TextName)
	}
	for directory, want := range map[string][]Entry{
		".": {{"1", true}, {"config.pbtxt", false}}, "1": {{"deep", true}, {"model.py", false}}, "1/deep": {{"er", false}}, "2": nil,
	} {
		if got := a.List(directory); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", directory, got, want)
		}
	}
	if got := w.mirror.Model("a-b").List("."); !slices.Equal(got, []Entry{{"1", true}}) {
		t.Errorf("a version without files: got %v", got)
	}
	if w.mirror.Model("b").TextName != "" || w.mirror.Model("README") != nil {
		t.Error("b has a configuration, or README is a model")
	}
}

func TestCopyIsCompleteAndPrivate(t *testing.T) {
	w := newWorld(t, nil, "a/config.pbtxt", "a/1/model.py", "a/2/", "a/3/x/y")
	c := w.mustCopy("a")
	defer c.Drop()
	const want = `1/ 700; 1/model.py 600 "a/1/model.py"; 2/ 700; 3/ 700; 3/x/ 700; 3/x/y 600 "a/3/x/y"; config.pbtxt 600 "a/config.pbtxt"`
	if got := testkit.Tree(t, c.Path()); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if !strings.HasPrefix(filepath.Base(c.Path()), "folder") || !strings.HasPrefix(c.Path(), w.place+"/") {
		t.Errorf("got the directory %s, want folder… in %s", c.Path(), w.place)
	}
	if info, err := os.Stat(c.Path()); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("got %v, %v, want mode 700", info, err)
	}
	some, err := w.mirror.Copy(t.Context(), w.mirror.Model("a"), func(key string) bool { return strings.HasPrefix(key, "1/") })
	if err != nil {
		t.Fatal(err)
	}
	defer some.Drop()
	if got := testkit.Tree(t, some.Path()); got != `1/ 700; 1/model.py 600 "a/1/model.py"` {
		t.Errorf("one version: got %s", got)
	}
}

// TestUnchangedObjectsAreTakenOver checks that a new copy fetches only the files that have changed
// in the store or were changed by the model.
func TestUnchangedObjectsAreTakenOver(t *testing.T) {
	w := newWorld(t, nil, "a/config.pbtxt", "a/1/kept", "a/1/replaced", "a/1/written", "a/1/deleted")
	first := w.mustCopy("a")
	w.store.Put("a/1/replaced", "new")
	w.store.Delete("a/1/deleted")
	if err := os.WriteFile(filepath.Join(first.Path(), "1/written"), []byte("by the model"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.renew()
	second := w.mustCopy("a")
	for key, want := range map[string]int{"a/1/kept": 1, "a/1/replaced": 2, "a/1/written": 2} {
		if got := w.store.Opened(key); got != want {
			t.Errorf("%s was read %d times, want %d", key, got, want)
		}
	}
	first.Drop()
	const want = `1/ 700; 1/kept 600 "a/1/kept"; 1/replaced 600 "new"; 1/written 600 "a/1/written"; config.pbtxt 600 "a/config.pbtxt"`
	if got := testkit.Tree(t, second.Path()); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	second.Drop()
	third := w.mustCopy("a") // without a copy in use, all files are fetched
	defer third.Drop()
	if got := w.store.Opened("a/1/kept"); got != 2 {
		t.Errorf("without a copy: a/1/kept was read %d times, want 2", got)
	}
	if f := w.mirror.Figures(); f.Copies != 3 || f.TakenBytes != uint64(len("a/1/kept")+len("a/config.pbtxt")) || f.Failures != 0 {
		t.Errorf("got the figures %+v", f)
	}
}

func TestCopiesThatFailLeaveNothing(t *testing.T) {
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		change func(*world)
		want   string
		is     error
	}{
		"replaced":    {func(w *world) { w.store.Put("a/1/y", "new") }, "the object has changed", objectstore.ErrChanged},
		"deleted":     {func(w *world) { w.store.Delete("a/1/y") }, "File does not exist at ", objectstore.ErrChanged},
		"open fails":  {func(w *world) { w.store.Fail(mirrortest.Open, broken) }, "broken", broken},
		"read fails":  {func(w *world) { w.store.Fail(mirrortest.Read, broken) }, "broken", broken},
		"open hangs":  {func(w *world) { w.store.Hang(mirrortest.Open) }, "the store of s3://bucket/models has sent nothing for 50ms", objectstore.ErrUnreachable},
		"read hangs":  {func(w *world) { w.store.Hang(mirrortest.Read) }, "the store of s3://bucket/models has sent nothing for 50ms", objectstore.ErrUnreachable},
		"two in one":  {func(w *world) { w.store.Put("a/1/y/z", "below"); w.renew() }, "s3://bucket/models/a/1/y is an object, and there are objects below it", nil},
		"no place":    {func(w *world) { w.mirror.config.Workspace = copies.NewWorkspace("/nowhere", zerolog.Nop()) }, "Failed to create local temp folder: /nowhere/folderXXXXXX, errno:No such file or directory (MOUNT names the directory)", nil},
		"place ended": {func(w *world) { w.mirror.config.Workspace.Close() }, "Server exiting", nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(c *Config) { c.Stall = 50 * time.Millisecond }, "a/1/x", "a/1/y")
			test.change(w)
			c, err := w.copyOf("a")
			if err == nil {
				c.Drop()
				t.Fatal("a copy was made")
			}
			if !strings.Contains(infer.AsError(err).Detailed().Message, test.want) || test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("got error %v, want %s (%v)", err, test.want, test.is)
			}
			places, _ := filepath.Glob(filepath.Join(w.place, "*/*"))
			if len(places) > 0 {
				t.Errorf("%q is left", places)
			}
		})
	}
}

// TestCopyEndsWithItsContext checks that copies from a hanging store, and copies waiting for their
// turn, end with the context.
func TestCopyEndsWithItsContext(t *testing.T) {
	w := newWorld(t, nil, "a/1/x")
	w.store.Hang(mirrortest.Read)
	ctx, end := context.WithCancelCause(t.Context())
	failed := make(chan error)
	const copiers = mostCopies + 1
	for range copiers {
		go func() {
			_, err := w.mirror.Copy(ctx, w.mirror.Model("a"), func(string) bool { return true })
			failed <- err
		}()
	}
	testkit.Eventually(t, 10*time.Second, func() bool { return w.store.Waiting(mirrortest.Read) == mostCopies })
	over := errors.New("over")
	end(over)
	for range copiers {
		if err := <-failed; !errors.Is(err, over) {
			t.Errorf("got error %v, want %v", err, over)
		}
	}
}

// TestOutageKeepsTheListing checks that models stay listed during an outage, and that the log has
// one line for its start and one for its end.
func TestOutageKeepsTheListing(t *testing.T) {
	changed := make(chan struct{}, 10)
	w := newWorld(t, func(c *Config) { c.Changed = func() { changed <- struct{}{} } }, "a/1/x")
	w.store.Fail(mirrortest.List, infer.Errorf(infer.Internal, "out of order"))
	w.store.Put("b/1/x", "new")
	for range 3 {
		w.renew()
	}
	if got := strings.Join(w.mirror.Models(), " "); got != "a" || len(changed) != 0 {
		t.Errorf("in the outage: got the models %s and %d changes, want a and none", got, len(changed))
	}
	if n := strings.Count(w.log.String(), "failed to poll model repository 's3://bucket/models': out of order; loaded models stay"); n != 1 {
		t.Errorf("the log names the outage %d times, want once: %s", n, w.log.String())
	}
	w.store.Fail(mirrortest.List, nil)
	w.renew()
	w.renew()
	if got := strings.Join(w.mirror.Models(), " "); got != "a b" || len(changed) != 1 {
		t.Errorf("after the outage: got the models %s and %d changes, want a b and one", got, len(changed))
	}
	if n := strings.Count(w.log.String(), "model repository 's3://bucket/models' responds again after 0s and 3 failed listings"); n != 1 {
		t.Errorf("the log names the end of the outage %d times, want once: %s", n, w.log.String())
	}
	if f := w.mirror.Figures(); f.Failures != 3 {
		t.Errorf("got %d failures, want 3", f.Failures)
	}
}

// TestRenewalsAreOneAtATime checks that a hanging renewal starts no second one and delays neither
// readers of the listing nor Close.
func TestRenewalsAreOneAtATime(t *testing.T) {
	w := newWorld(t, nil, "a/1/x")
	w.store.Hang(mirrortest.List)
	for range 3 {
		w.mirror.Renew(0)
	}
	testkit.Eventually(t, 10*time.Second, func() bool { return w.store.Waiting(mirrortest.List) == 1 })
	if w.mirror.Model("a") == nil || w.store.Lists() != 2 {
		t.Errorf("got the model %v after %d listings, want it after two", w.mirror.Model("a"), w.store.Lists())
	}
	// The cleanup closes the mirror while the store hangs.
}

func TestYoungListingsAreNotRenewed(t *testing.T) {
	w := newWorld(t, nil, "a/1/x")
	w.mirror.Renew(time.Hour)
	w.mirror.renewals.Wait()
	if got := w.store.Lists(); got != 1 {
		t.Errorf("got %d listings, want one", got)
	}
}

// TestFailedListingsAreNotRepeated checks that a failed listing is not retried before the renewal
// interval ends.
func TestFailedListingsAreNotRepeated(t *testing.T) {
	w := newWorld(t, nil, "a/1/x")
	w.mirror.mu.Lock()
	w.mirror.listed, w.mirror.tried = time.Now().Add(-2*time.Hour), time.Now().Add(-2*time.Hour)
	w.mirror.mu.Unlock()
	w.store.Fail(mirrortest.List, errors.New("denied"))
	for range 5 {
		w.mirror.Renew(time.Hour)
		w.mirror.renewals.Wait()
	}
	if got := w.store.Lists(); got != 2 {
		t.Errorf("got %d listings, want that of the start and one", got)
	}
	if age := w.mirror.Figures().ListingAge; age < 2*time.Hour {
		t.Errorf("got the age %s, want that of the complete listing", age)
	}
}

// TestEmptyListingIsAnOutage checks that an empty listing below a path counts as a failure. It is
// also an error when the mirror is opened.
func TestEmptyListingIsAnOutage(t *testing.T) {
	w := newWorld(t, nil, "a/1/x")
	w.store.Delete("a/1/x")
	w.renew()
	if got := strings.Join(w.mirror.Models(), " "); got != "a" || w.mirror.Figures().Failures != 1 {
		t.Errorf("got the models %q and %d failures, want a and one", got, w.mirror.Figures().Failures)
	}
	w.store.Put("b/1/x", "new")
	w.renew()
	if got := strings.Join(w.mirror.Models(), " "); got != "b" || !strings.Contains(w.log.String(), "responds again") {
		t.Errorf("after the outage: got the models %q, want b: %s", got, w.log.String())
	}
}

func TestPanicOfAListingIsAFailure(t *testing.T) {
	w := newWorld(t, nil, "a/1/x")
	w.store.Before(func(call mirrortest.Call, _ string) {
		if call == mirrortest.List {
			panic("in a client")
		}
	})
	w.renew()
	if f := w.mirror.Figures(); f.Failures != 1 || !strings.Contains(w.log.String(), "failed to poll model repository 's3://bucket/models': internal error") {
		t.Errorf("got %d failures, want one: %s", f.Failures, w.log.String())
	}
	w.store.Before(nil)
	w.store.Put("b/1/x", "new")
	w.renew()
	if got := strings.Join(w.mirror.Models(), " "); got != "a b" {
		t.Errorf("after the panic: got the models %s, want a b", got)
	}
}

// TestCopiesWithoutUsersAreForgotten checks that the mirror forgets deleted models without copies
// in use, but keeps deleted models that are still served.
func TestCopiesWithoutUsersAreForgotten(t *testing.T) {
	w := newWorld(t, nil, "a/1/x", "b/1/x", "c/1/x")
	held := w.mustCopy("a")
	defer held.Drop()
	w.mustCopy("b").Drop()
	w.store.Delete("a/1/x")
	w.store.Delete("b/1/x")
	w.renew()
	w.mirror.mu.Lock()
	defer w.mirror.mu.Unlock()
	if len(w.mirror.living) != 1 || w.mirror.living["a"] == nil {
		t.Errorf("got %v, want a alone", w.mirror.living)
	}
}

// TestLookSeesOneModel checks that Look updates one model, and that a renewal that began earlier
// does not undo this.
func TestLookSeesOneModel(t *testing.T) {
	w := newWorld(t, nil, "a/1/x", "b/1/x")
	began, goOn := make(chan struct{}), make(chan struct{})
	w.store.Before(func(call mirrortest.Call, key string) {
		if call == mirrortest.Open && key == "slow/config.pbtxt" {
			close(began)
			<-goOn
		}
	})
	w.store.Put("slow/config.pbtxt", "")
	w.mirror.Renew(0)
	<-began
	w.store.Put("c/config.pbtxt", "c")
	w.store.Delete("b/1/x")
	for _, name := range []string{"c", "b"} {
		if _, err := w.mirror.Look(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(w.mirror.Models(), " "); got != "a c" || string(w.mirror.Model("c").Text) != "c" {
		t.Errorf("got the models %s, want a c", got)
	}
	close(goOn)
	w.mirror.renewals.Wait()
	if got := strings.Join(w.mirror.Models(), " "); got != "a c slow" {
		t.Errorf("after the renewal: got the models %s, want a c slow", got)
	}
}

// TestLooksForMissingModelsAreForgotten checks that looks for models that do not exist, whose names
// clients choose, keep few results during a renewal.
func TestLooksForMissingModelsAreForgotten(t *testing.T) {
	w := newWorld(t, nil, "a/1/x")
	began, goOn := make(chan struct{}), make(chan struct{})
	w.store.Before(func(call mirrortest.Call, key string) {
		if call == mirrortest.Open && key == "slow/config.pbtxt" {
			close(began)
			<-goOn
		}
	})
	w.store.Put("slow/config.pbtxt", "")
	w.mirror.Renew(0)
	<-began
	for i := range mostGone + 10 {
		if model, err := w.mirror.Look(t.Context(), strconv.Itoa(i)); err != nil || model != nil {
			t.Fatalf("got %v, %v, want no model", model, err)
		}
	}
	w.store.Put("c/config.pbtxt", "c")
	if _, err := w.mirror.Look(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	w.mirror.mu.Lock()
	kept := len(w.mirror.looked)
	w.mirror.mu.Unlock()
	close(goOn)
	w.mirror.renewals.Wait()
	if got := strings.Join(w.mirror.Models(), " "); got != "a c slow" || kept != mostGone+1 {
		t.Errorf("got the models %s and %d results, want a c slow and %d", got, kept, mostGone+1)
	}
}

func TestConfigurationsAreReadOnce(t *testing.T) {
	w := newWorld(t, nil, "a/config.pbtxt", "b/config.pbtxt")
	w.store.Put("b/config.pbtxt", "new")
	w.renew()
	if string(w.mirror.Model("b").Text) != "new" || w.store.Opened("a/config.pbtxt") != 1 || w.store.Opened("b/config.pbtxt") != 2 {
		t.Errorf("got %q, read %d times, and the other %d times", w.mirror.Model("b").Text, w.store.Opened("b/config.pbtxt"), w.store.Opened("a/config.pbtxt"))
	}
}

// TestKeysThatAreNoFiles checks that keys which cannot be file names make only their own models
// unreadable.
func TestKeysThatAreNoFiles(t *testing.T) {
	w := newWorld(t, nil, "a/1/x", "b/../x", "c//x", "b/1/x")
	if w.mirror.Model("a").Fault != nil || w.mirror.Model("b").Fault == nil {
		t.Errorf("got the faults %v and %v, want one of b alone", w.mirror.Model("a").Fault, w.mirror.Model("b").Fault)
	}
	w.renew()
	if n := strings.Count(w.log.String(), "the names of 2 objects cannot be file names"); n != 1 {
		t.Errorf("the log warns %d times, want once: %s", n, w.log.String())
	}
	var refused *objectstore.RefusedError
	if _, err := w.mirror.Look(t.Context(), "b"); !errors.As(err, &refused) {
		t.Errorf("got error %v, want the refused key", err)
	}
}

// TestManyKeysThatAreNoFiles checks that many invalid keys affect only their own model and count as
// objects.
func TestManyKeysThatAreNoFiles(t *testing.T) {
	keys := []string{"good/1/x", "bad/1/x"}
	for i := range 100 {
		keys = append(keys, "bad//"+strconv.Itoa(i))
	}
	w := newWorld(t, func(c *Config) { c.MaxObjects = len(keys) }, keys...)
	if good, bad := w.mirror.Model("good").Fault, w.mirror.Model("bad").Fault; good != nil || bad == nil {
		t.Errorf("got the faults %v and %v, want one of bad alone", good, bad)
	}
	w.store.Put("bad//more", "")
	w.renew()
	if n := w.mirror.Figures().Failures; n != 1 || !strings.Contains(w.log.String(), "has more than 102 objects") {
		t.Errorf("got %d failures, want one: %s", n, w.log.String())
	}
}

// TestListingsAreBoundedInBytes checks the limit on the bytes of keys, versions and configs.
func TestListingsAreBoundedInBytes(t *testing.T) {
	const most = 400
	for name, more := range map[string]func(*mirrortest.Store){
		"keys": func(s *mirrortest.Store) {
			s.Put("a/1/"+strings.Repeat("x", 200), "")
			s.Put("a/1/"+strings.Repeat("y", 200), "")
		},
		"texts": func(s *mirrortest.Store) {
			s.Put("a/config.pbtxt", strings.Repeat("x", 200))
			s.Put("b/config.pbtxt", strings.Repeat("x", 200))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(c *Config) { c.MaxBytes = most }, "a/1/x")
			more(w.store)
			w.renew()
			if f := w.mirror.Figures(); f.Failures != 1 || !strings.Contains(w.log.String(), "the keys and configurations of s3://bucket/models have more than 400 bytes") {
				t.Errorf("got %d failures, want one: %s", f.Failures, w.log.String())
			}
		})
	}
}

// TestRenewalsShareUnchangedModels checks that a renewed listing shares unchanged models with the
// previous one.
func TestRenewalsShareUnchangedModels(t *testing.T) {
	w := newWorld(t, nil, "a/1/x", "b/1/x", "b/1/y")
	a, b := w.mirror.Model("a"), w.mirror.Model("b")
	w.store.Put("b/1/y", "b/1/x") // same size
	w.renew()
	if now := w.mirror.Model("a"); &now.Objects[0] != &a.Objects[0] {
		t.Error("the objects of a are there twice")
	}
	if now := w.mirror.Model("b"); &now.Objects[0] == &b.Objects[0] || now.Objects[1].Version == b.Objects[1].Version {
		t.Error("b is as it was")
	}
}

func TestOpensThatFail(t *testing.T) {
	broken := infer.Errorf(infer.Internal, "Unable to create S3 filesystem client.")
	for name, test := range map[string]struct {
		url    string
		change func(*mirrortest.Store)
		want   string
	}{
		"refused":  {"s3://b/p", func(s *mirrortest.Store) { s.Fail(mirrortest.Open, broken) }, broken.Message},
		"unlisted": {"s3://b/p", func(s *mirrortest.Store) { s.Fail(mirrortest.List, broken) }, broken.Message},
		"hangs":    {"s3://b/p", func(s *mirrortest.Store) { s.Hang(mirrortest.Open) }, "the store of s3://b/p has sent nothing for 50ms"},
		"stops":    {"s3://b/p", func(s *mirrortest.Store) { s.Hang(mirrortest.List) }, "the store of s3://b/p has sent nothing for 50ms"},
		"no path":  {"s3://b/p", func(s *mirrortest.Store) { s.Delete("a/1/x") }, "repository path is not a valid directory"},
		"empty":    {"s3://b", func(s *mirrortest.Store) { s.Delete("a/1/x") }, ""},
		"too much": {"s3://b/p", func(s *mirrortest.Store) { s.Put("a/1/y", ""); s.Put("a/1/z", "") }, "s3://b/p has more than 2 objects, the maximum for a model repository: name only the directory of the models"},
	} {
		t.Run(name, func(t *testing.T) {
			store := mirrortest.New()
			store.Put("a/1/x", "")
			test.change(store)
			location, _, err := objectstore.Parse(test.url)
			if err != nil {
				t.Fatal(err)
			}
			m, err := Open(t.Context(), Config{Location: location, Open: store.Opener, Workspace: copies.NewWorkspace(t.TempDir(), zerolog.Nop()), Stall: 50 * time.Millisecond, MaxObjects: 2})
			if err == nil {
				m.Close()
			}
			if got := errorText(err); got != test.want {
				t.Errorf("got error %q, want %q", got, test.want)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// unordered is a bucket that lists in reverse order, after an outdated version of one object.
type unordered struct {
	objectstore.Bucket
	was objectstore.Object
}

// List implements objectstore.Bucket.
func (u unordered) List(ctx context.Context, prefix string, each func(objectstore.Object) error) error {
	list := []objectstore.Object{u.was}
	err := u.Bucket.List(ctx, prefix, func(o objectstore.Object) error {
		list = slices.Insert(list, 1, o)
		return nil
	})
	for _, o := range list {
		err = errors.Join(err, each(o))
	}
	return err
}

func TestListingsInNoOrder(t *testing.T) {
	w := newWorld(t, func(c *Config) {
		open := c.Open
		c.Open = func(ctx context.Context, at objectstore.Location) (objectstore.Bucket, error) {
			bucket, err := open(ctx, at)
			return unordered{bucket, objectstore.Object{Key: "a/config.pbtxt", Size: 1, Version: "before"}}, err
		}
	}, "a/1/", "a/1-x/file", "a/1/model.py", "a/1.txt", "a/config.pbtxt", "a/z")
	a := w.mirror.Model("a")
	if string(a.Text) != "a/config.pbtxt" {
		t.Errorf("got the configuration %q of %q", a.Text, a.TextName)
	}
	want := []Entry{{"1", true}, {"1-x", true}, {"1.txt", false}, {"config.pbtxt", false}, {"z", false}}
	if got := a.List("."); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	c := w.mustCopy("a")
	defer c.Drop()
	if text, err := os.ReadFile(filepath.Join(c.Path(), "1/model.py")); err != nil || string(text) != "a/1/model.py" {
		t.Errorf("1/model.py is %q, %v", text, err)
	}
}
