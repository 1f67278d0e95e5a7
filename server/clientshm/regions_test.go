package clientshm_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/server/clientshm"
)

// page is a multiple of the page size of all machines.
const page = 64 << 10

// folder creates a folder with a file "two" of two pages. The first page begins with "first", the
// second with "second".
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	data := make([]byte, 2*page)
	copy(data, "first")
	copy(data[page:], "second")
	if err := os.WriteFile(filepath.Join(dir, "two"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// enabled returns a registry of the files in dir.
func enabled(t *testing.T, dir string, change ...func(*clientshm.Config)) *clientshm.Registry {
	t.Helper()
	config := clientshm.Config{Enabled: true, Directory: dir}
	for _, f := range change {
		f(&config)
	}
	r := clientshm.New(config)
	t.Cleanup(r.Close)
	return r
}

func wantError(t *testing.T, err error, code infer.Code, text string) {
	t.Helper()
	var e *infer.Error
	if !errors.As(err, &e) || e.Code != code || e.Message != text {
		t.Errorf("got  %v\nwant %v: %s", err, code, text)
	}
}

// TestRegisterRefusesInOrder checks the text of each registration error, and that the checks run in
// Triton's order.
func TestRegisterRefusesInOrder(t *testing.T) {
	dir := folder(t)
	outside := filepath.Join(t.TempDir(), "outside")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(outside, make([]byte, page), 0o600))
	must(os.Symlink(outside, filepath.Join(dir, "link")))
	must(os.Symlink("two", filepath.Join(dir, "inner")))
	must(os.Mkdir(filepath.Join(dir, "folder"), 0o700))
	must(os.WriteFile(filepath.Join(dir, "folder", "file"), make([]byte, page), 0o600))
	must(unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	must(os.WriteFile(filepath.Join(dir, "ours"), make([]byte, page), 0o600))
	must(os.WriteFile(filepath.Join(dir, "empty"), nil, 0o600))
	must(os.WriteFile(filepath.Join(dir, "closed"), make([]byte, page), 0o000))
	var ours unix.Stat_t
	must(unix.Stat(filepath.Join(dir, "ours"), &ours))
	r := enabled(t, dir, func(c *clientshm.Config) {
		c.Ours = func(device, inode uint64) bool { return device == ours.Dev && inode == ours.Ino }
	})
	must(r.RegisterSystem("taken", "two", 0, page))

	const (
		unable = "Unable to open shared memory region: '%s'"
		args   = "failed to register shared memory region 'r': invalid args"
		space  = "failed to register shared memory region 'r': unable to process address spaceInvalid argument"
	)
	for _, c := range []struct {
		name, key    string
		offset, size uint64
		code         infer.Code
		want         string
	}{
		{"r", "", 0, 1, infer.InvalidArg, "cannot register shared memory region 'r' - invalid shm key ''"},
		{"taken", "///", 0, 1, infer.InvalidArg, "cannot register shared memory region 'taken' - invalid shm key '///'"},
		{"taken", "//triton_python_backend_shm_region_7", 0, 1, infer.InvalidArg,
			"cannot register shared memory region 'taken' with key '//triton_python_backend_shm_region_7' as the key contains the reserved prefix 'triton_python_backend_shm_region_'"},
		{"taken", "/two", 0, page, infer.AlreadyExists, "shared memory region 'taken' already in manager"},
		{"taken", "/none", 0, page, infer.AlreadyExists, "shared memory region 'taken' already in manager"},
		{"r", "/none", 0, 1, infer.Internal, fmt.Sprintf(unable, "/none")},
		{"r", "/link", 0, 1, infer.Internal, fmt.Sprintf(unable, "/link")},
		{"r", "/inner", 0, 1, infer.Internal, fmt.Sprintf(unable, "/inner")},
		{"r", "/folder", 0, 1, infer.Internal, fmt.Sprintf(unable, "/folder")},
		{"r", "/folder/file", 0, 1, infer.Internal, fmt.Sprintf(unable, "/folder/file")},
		{"r", "/folder/../two", 0, 1, infer.Internal, fmt.Sprintf(unable, "/folder/../two")},
		{"r", "/..", 0, 1, infer.Internal, fmt.Sprintf(unable, "/..")},
		{"r", ".", 0, 1, infer.Internal, fmt.Sprintf(unable, ".")},
		{"r", "two\x00", 0, 1, infer.Internal, fmt.Sprintf(unable, "two\x00")},
		{"r", strings.Repeat("k", 300), 0, 1, infer.Internal, fmt.Sprintf(unable, strings.Repeat("k", 300))},
		{"r", "/ours", 0, 1, infer.Internal, fmt.Sprintf(unable, "/ours")},
		{"r", "/pipe", 0, 1, infer.Internal, "Invalid shared memory region: '/pipe'"},
		{"r", "/two", 0, 2*page + 1, infer.InvalidArg, args},
		{"r", "/two", 2 * page, 1, infer.InvalidArg, args},
		{"r", "/two", math.MaxUint64 - page + 1, page, infer.InvalidArg, args},
		{"r", "/two", page, math.MaxUint64 - page + 2, infer.InvalidArg, args},
		{"r", "/two", 5, 10, infer.InvalidArg, space},
		{"r", "/two", 0, 0, infer.InvalidArg, space},
		{"r", "/empty", 0, 0, infer.InvalidArg, space},
		{"r\xff", "/two", 0, 1, infer.InvalidArg, "the name of a shared memory region is not valid UTF-8"},
		{"r", "/two\xff", 0, 1, infer.InvalidArg, "the key of a shared memory region is not valid UTF-8"},
		{"r", strings.Repeat("/", 5000) + "two", 0, 1, infer.InvalidArg, "the key of a shared memory region has 5003 bytes, at most 4096 are allowed"},
	} {
		before := testkit.Descriptors(t)
		wantError(t, r.RegisterSystem(c.name, c.key, c.offset, c.size), c.code, c.want)
		if after := testkit.Descriptors(t); after != before {
			t.Errorf("register %q: %d descriptors are open, %d were before", c.key, after, before)
		}
	}
	if os.Geteuid() != 0 { // root may open every file
		wantError(t, r.RegisterSystem("r", "/closed", 0, 1), infer.Internal, fmt.Sprintf(unable, "/closed"))
	}

	must(r.RegisterSystem("first", "//two", 0, 2*page))
	must(r.RegisterSystem("second", "two", page, page))
	list, err := r.Status(clientshm.System, "")
	want := []clientshm.Status{{clientshm.System, "first", "//two", 0, 2 * page, 0}, {clientshm.System, "second", "two", page, page, 0}, {clientshm.System, "taken", "two", 0, page, 0}}
	if err != nil || fmt.Sprint(list) != fmt.Sprint(want) {
		t.Errorf("got %v and error %v, want %v", list, err, want)
	}
	if count, bytes := r.Stats(); count != 3 || bytes != 4*page {
		t.Errorf("got %d regions of %d bytes, want 3 of %d", count, bytes, 4*page)
	}
}

// TestFailedRegistrationsLeaveNothing checks that 2,000 registrations that fail after their file
// was opened leave no descriptor open.
func TestFailedRegistrationsLeaveNothing(t *testing.T) {
	r := enabled(t, folder(t))
	if err := r.RegisterSystem("taken", "two", 0, 1); err != nil {
		t.Fatal(err)
	}
	before := testkit.Descriptors(t)
	for i := range 2000 {
		name, offset, size := "r", uint64(0), uint64(2*page+1)
		switch i % 4 {
		case 1:
			offset, size = 1, 1 // the kernel refuses to map it
		case 2:
			size = 0
		case 3:
			name, size = "taken", 1
		}
		if err := r.RegisterSystem(name, "two", offset, size); err == nil {
			t.Fatalf("registration %d succeeded", i)
		}
	}
	if after := testkit.Descriptors(t); after != before {
		t.Errorf("%d descriptors are open, %d were before", after, before)
	}
}

// TestShortagesRefuseARegistration runs out of descriptors for the file, then of addresses for its
// mapping, and checks that the registration fails and the next one succeeds.
func TestShortagesRefuseARegistration(t *testing.T) {
	dir := folder(t)
	r := enabled(t, dir)
	before := testkit.Descriptors(t)
	if file, err := os.CreateTemp("/dev/shm", "nereid-regions-test-"); err == nil {
		defer os.Remove(file.Name())
		if err := errors.Join(file.Truncate(1<<50), file.Close()); err != nil { // a sparse file
			t.Fatal(err)
		}
		vast, key := enabled(t, ""), filepath.Base(file.Name())
		const space = "failed to register shared memory region '%s': unable to process address spaceCannot allocate memory"
		wantError(t, vast.RegisterSystem("a", key, 0, clientshm.MostBytes+1), infer.InvalidArg, fmt.Sprintf(space, "a"))
		if err := vast.RegisterSystem("b", key, 0, clientshm.MostBytes/2+1); err != nil {
			t.Error(err)
		}
		wantError(t, vast.RegisterSystem("c", key, 0, clientshm.MostBytes/2), infer.InvalidArg, fmt.Sprintf(space, "c"))
		vast.Close()
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: limit.Max})
	refused := r.RegisterSystem("r", "two", 0, page)
	if err := errors.Join(err, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)); err != nil {
		t.Fatal(err)
	}
	wantError(t, refused, infer.Internal, "Unable to open shared memory region: 'two'")
	if after := testkit.Descriptors(t); after != before {
		t.Errorf("%d descriptors are open, %d were before", after, before)
	}
	if err := r.RegisterSystem("r", "two", 0, page); err != nil {
		t.Error(err)
	}
}

func TestRegistriesAreOffUnlessEnabled(t *testing.T) {
	r := clientshm.New(clientshm.Config{Directory: folder(t)})
	for _, err := range []error{r.CheckEnabled(), r.RegisterSystem("", "", 0, 0), r.RegisterCUDA(t.Context(), "c", 0, make([]byte, 64), 1), r.Unregister(clientshm.System, ""), r.Unregister(clientshm.CUDA, "c")} {
		wantError(t, err, infer.Unsupported, "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.")
	}
	if list, err := r.Status(clientshm.System, ""); err != nil || len(list) != 0 {
		t.Errorf("got %v and error %v, want nothing", list, err)
	}
	_, err := r.Find("r", 0, 1)
	wantError(t, err, infer.NotFound, "Unable to find shared memory region: 'r'")
}

func TestMostBoundsRegions(t *testing.T) {
	r := enabled(t, folder(t), func(c *clientshm.Config) { c.Most = 2 })
	for _, name := range []string{"a", "b"} {
		if err := r.RegisterSystem(name, "two", 0, 1); err != nil {
			t.Fatal(err)
		}
	}
	wantError(t, r.RegisterSystem("a", "two", 0, 1), infer.AlreadyExists, "shared memory region 'a' already in manager")
	wantError(t, r.RegisterSystem("c", "two", 0, 1), infer.Unavailable,
		"failed to register shared memory region 'c': there are already 2 regions, the maximum (--client-shm-max-regions)")
	if err := errors.Join(r.Unregister(clientshm.System, "b"), r.RegisterSystem("c", "two", 0, 1)); err != nil {
		t.Error(err)
	}
}

// TestKindsShareNames checks that system and CUDA regions share one namespace.
func TestKindsShareNames(t *testing.T) {
	r := enabled(t, folder(t))
	if err := r.RegisterSystem("s", "two", 0, 1); err != nil {
		t.Fatal(err)
	}
	wantError(t, r.RegisterCUDA(t.Context(), "s", 0, make([]byte, 64), 1), infer.AlreadyExists, "shared memory region 's' already in manager")
	wantError(t, r.RegisterCUDA(t.Context(), "c", 0, make([]byte, 64), 1), infer.InvalidArg, "failed to register CUDA shared memory region: 'c', GPUs not supported")
	_, err := r.Status(clientshm.CUDA, "s")
	wantError(t, err, infer.NotFound, "The region named 's' is registered as system shared memory, not CUDA shared memory")
	_, err = r.Status(clientshm.CUDA, "c")
	wantError(t, err, infer.NotFound, "Unable to find cuda shared memory region: 'c'")
	_, err = r.Status(clientshm.System, "c")
	wantError(t, err, infer.NotFound, "Unable to find system shared memory region: 'c'")
	if list, err := r.Status(clientshm.CUDA, ""); err != nil || len(list) != 0 {
		t.Errorf("got %v and error %v, want nothing", list, err)
	}
	if err := errors.Join(r.Unregister(clientshm.CUDA, "s"), r.Unregister(clientshm.CUDA, ""), r.Unregister(clientshm.System, "none")); err != nil {
		t.Error(err)
	}
	if list, err := r.Status(clientshm.System, "s"); err != nil || len(list) != 1 {
		t.Errorf("got %v and error %v, want the region of the system", list, err)
	}
	if err := r.Unregister(clientshm.System, "s"); err != nil {
		t.Error(err)
	}
	_, err = r.Status(clientshm.System, "s")
	wantError(t, err, infer.NotFound, "Unable to find system shared memory region: 's'")
}

func TestFindChecksTheRange(t *testing.T) {
	r := enabled(t, folder(t))
	if err := r.RegisterSystem("r", "two", page, page); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name         string
		offset, size uint64
		code         infer.Code
		want         string
	}{
		{"none", 0, 1, infer.NotFound, "Unable to find shared memory region: 'none'"},
		{"r", page, 0, infer.InvalidArg, "Invalid offset for shared memory region: 'r'"},
		{"r", math.MaxUint64, math.MaxUint64, infer.InvalidArg, "Invalid offset for shared memory region: 'r'"},
		{"r", 1, math.MaxUint64, infer.InvalidArg,
			"Integer overflow detected: byte_size (18446744073709551615) + offset (1) exceeds maximum value (18446744073709551615) for region 'r'"},
		{"r", 0, math.MaxUint64, infer.InvalidArg, "Invalid offset + byte size for shared memory region: 'r'"},
		{"r", 1, page, infer.InvalidArg, "Invalid offset + byte size for shared memory region: 'r'"},
	} {
		_, err := r.Find(c.name, c.offset, c.size)
		wantError(t, err, c.code, c.want)
	}
	for _, c := range []struct {
		offset, size uint64
		want         string
	}{{0, 6, "second"}, {2, 3, "con"}, {0, 0, ""}, {page - 1, 1, "\x00"}} {
		s, err := r.Find("r", c.offset, c.size)
		if err != nil {
			t.Fatal(err)
		}
		data, _, err := s.Copy(t.Context())
		if err != nil || string(data) != c.want || s.Size() != int64(c.size) {
			t.Errorf("[%d, +%d): got %q and error %v, want %q", c.offset, c.size, data, err, c.want)
		}
		s.Release()
	}
}

// block is a test allocator's memory. It counts its references.
type block struct{ lent *int }

func (b block) Retain()  { *b.lent++ }
func (b block) Release() { *b.lent-- }

// TestCopiesAreCharged checks that small copies are charged to the account, that large copies come
// from the allocator, and that both are released after the file was truncated.
func TestCopiesAreCharged(t *testing.T) {
	dir, lent := folder(t), 0
	account := budget.New(budget.Config{Limit: 1 << 20})
	full := infer.Errorf(infer.Unavailable, "the pool is full")
	r := enabled(t, dir, func(c *clientshm.Config) {
		c.Account = account
		c.Allocate = func(n int) ([]byte, infer.Memory, error) {
			if n > page {
				return nil, nil, full
			}
			lent++
			return make([]byte, n), block{&lent}, nil
		}
	})
	if err := r.RegisterSystem("r", "two", 0, 2*page); err != nil {
		t.Fatal(err)
	}
	find := func(size uint64) *clientshm.Slice {
		t.Helper()
		s, err := r.Find("r", 0, size)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Release)
		return s
	}
	small, large, huge := find(100), find(page), find(2*page)
	_, one, err := small.Copy(t.Context())
	_, two, err2 := large.Copy(t.Context())
	if err != nil || err2 != nil || account.Used(budget.Bodies) != 100 || lent != 1 {
		t.Fatalf("errors %v and %v, %d bytes are charged and %d blocks lent, want 100 and 1", err, err2, account.Used(budget.Bodies), lent)
	}
	one.Release()
	two.Release()
	if _, _, err := huge.Copy(t.Context()); !errors.Is(err, full) {
		t.Errorf("got %v, want %v", err, full)
	}
	if err := os.Truncate(filepath.Join(dir, "two"), 50); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*clientshm.Slice{small, large} {
		_, _, err := s.Copy(t.Context())
		wantError(t, err, infer.InvalidArg, "shared memory region 'r' has been truncated by its owner")
	}
	if account.Total() != 0 || lent != 0 {
		t.Errorf("%d bytes are charged and %d blocks lent, want none", account.Total(), lent)
	}
}

func TestWriteStaysInItsRange(t *testing.T) {
	dir := folder(t)
	r := enabled(t, dir)
	if err := r.RegisterSystem("r", "two", page, page); err != nil {
		t.Fatal(err)
	}
	s, err := r.Find("r", 3, 6)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	wantError(t, s.Write(t.Context(), "O", []byte("1234567")), infer.Internal,
		"shared memory size specified with the request for output 'O' (6 bytes) should be at least 7 bytes to hold the results")
	for _, data := range []string{"OND", ""} {
		if err := s.Write(t.Context(), "O", []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(filepath.Join(dir, "two"))
	if err != nil || !bytes.HasPrefix(got, []byte("first\x00")) || !bytes.HasPrefix(got[page:], []byte("secOND\x00")) {
		t.Errorf("got %q…, %q… and error %v, want first and secOND", got[:6], got[page:page+8], err)
	}

	// The file has become too short: the write fails, the process survives and the file is not
	// extended.
	path := filepath.Join(dir, "two")
	if err := os.Truncate(path, 10); err != nil {
		t.Fatal(err)
	}
	wantError(t, s.Write(t.Context(), "O", []byte("x")), infer.InvalidArg, "shared memory region 'r' has been truncated by its owner")
	if info, err := os.Stat(path); err != nil || info.Size() != 10 {
		t.Errorf("got a file of %d bytes and error %v, want 10", info.Size(), err)
	}
	// The file may grow again: the region still refers to it.
	if err := errors.Join(os.Truncate(path, 2*page), s.Write(t.Context(), "O", []byte("back"))); err != nil {
		t.Error(err)
	}
}

// TestRegionsOutliveTheirNames checks that a slice stays usable after its file was removed and its
// region was unregistered, and that its release closes everything.
func TestRegionsOutliveTheirNames(t *testing.T) {
	dir := folder(t)
	r := enabled(t, dir)
	before := testkit.Descriptors(t)
	if err := r.RegisterSystem("r", "two", 0, page); err != nil {
		t.Fatal(err)
	}
	s, err := r.Find("r", 0, 5)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "two")
	if err := errors.Join(os.Remove(path), os.WriteFile(path, bytes.Repeat([]byte("n"), page), 0o600), r.Unregister(clientshm.System, "")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Find("r", 0, 5); err == nil {
		t.Error("the region is found after it was unregistered")
	}
	if err := r.RegisterSystem("r", "two", 0, page); err != nil {
		t.Errorf("the name is not free: %v", err)
	}
	if data, _, err := s.Copy(t.Context()); err != nil || string(data) != "first" {
		t.Errorf("got %q and error %v, want first", data, err)
	}
	if err := s.Write(t.Context(), "O", []byte("x")); err != nil {
		t.Error(err)
	}
	s.Release()
	if err := r.Unregister(clientshm.System, "r"); err != nil {
		t.Error(err)
	}
	if after := testkit.Descriptors(t); after != before {
		t.Errorf("%d descriptors are open, %d were before", after, before)
	}
}

// TestHolesStayHoles checks that reading a sparse region allocates no blocks for its file.
func TestHolesStayHoles(t *testing.T) {
	file, err := os.CreateTemp("/dev/shm", "nereid-regions-test-")
	if err != nil {
		t.Skip(err)
	}
	defer os.Remove(file.Name())
	defer file.Close()
	if err := file.Truncate(16 << 20); err != nil {
		t.Fatal(err)
	}
	r := enabled(t, "")
	if err := r.RegisterSystem("r", "/"+filepath.Base(file.Name()), 0, 16<<20); err != nil {
		t.Fatal(err)
	}
	s, err := r.Find("r", 0, 16<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	if data, _, err := s.Copy(t.Context()); err != nil || len(bytes.Trim(data, "\x00")) > 0 {
		t.Errorf("error %v, or not only zeros", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil || st.Blocks != 0 {
		t.Errorf("%d blocks are real and error %v, want none", st.Blocks, err)
	}
}

// TestStormLeavesNothingOpen concurrently registers, uses, truncates and unregisters regions at
// random, and checks that no descriptor stays open.
func TestStormLeavesNothingOpen(t *testing.T) {
	dir := folder(t)
	r := enabled(t, dir, func(c *clientshm.Config) { c.Most = 3 })
	before := testkit.Descriptors(t)
	var wait sync.WaitGroup
	for g := range 6 {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(uint64(g), 7))
			for range 1500 {
				name := string(rune('a' + random.IntN(4)))
				switch random.IntN(6) {
				case 0:
					_ = r.RegisterSystem(name, "two", 0, uint64(1+random.IntN(3*page)))
				case 1:
					_ = r.Unregister(clientshm.System, name)
				case 2:
					_ = os.Truncate(filepath.Join(dir, "two"), int64(random.IntN(2*page)))
				case 3:
					_ = os.Truncate(filepath.Join(dir, "two"), 2*page)
				default:
					s, err := r.Find(name, uint64(random.IntN(page)), uint64(random.IntN(page)))
					if err != nil {
						continue
					}
					_, _, _ = s.Copy(t.Context())
					_ = s.Write(t.Context(), "O", make([]byte, s.Size()))
					s.Release()
				}
			}
		})
	}
	wait.Wait()
	r.Close()
	if count, bytes := r.Stats(); count != 0 || bytes != 0 {
		t.Errorf("%d regions of %d bytes are left, want none", count, bytes)
	}
	if after := testkit.Descriptors(t); after != before {
		t.Errorf("%d descriptors are open, %d were before", after, before)
	}
}
