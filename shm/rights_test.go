package shm_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/shm"
)

// reopenVariable makes this test binary reopen descriptor 3 and report its access.
const reopenVariable = "NEREID_TEST_REOPEN"

// TestReopenDescriptor is the child process of TestRegionsAreWrittenByTheirOwner.
func TestReopenDescriptor(t *testing.T) {
	if os.Getenv(reopenVariable) == "" {
		t.Skip("is run by TestRegionsAreWrittenByTheirOwner")
	}
	word := func(err error) string {
		if err != nil {
			return err.Error()
		}
		return "done"
	}
	again, err := unix.Open("/proc/self/fd/3", unix.O_RDWR, 0)
	fmt.Printf("\nopen: %s\n", word(err))
	if err == nil {
		_, err = unix.Write(again, []byte("x"))
		fmt.Printf("write: %s\n", word(err))
		fmt.Printf("map: %s\n", word(mapped(again, unix.PROT_READ|unix.PROT_WRITE)))
		_ = unix.Close(again)
	}
	fmt.Printf("mode: %s\n", word(unix.Fchmod(3, 0o666)))
	_, err = unix.Write(3, []byte("x"))
	fmt.Printf("own: %s\n", word(err))
	fmt.Printf("read: %s\n", word(mapped(3, unix.PROT_READ)))
}

// mapped maps a page of a file and unmaps it again.
func mapped(fd, protection int) error {
	page, err := unix.Mmap(fd, 0, int(shm.PageSize), protection, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	return unix.Munmap(page)
}

// reopened returns the access that a process with a read-only descriptor of a region has. The
// process runs as another user, or as this one if user is 0.
func reopened(t *testing.T, r *shm.Region, user uint32) string {
	t.Helper()
	file, err := r.OpenReadOnly()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	command := exec.Command("/proc/self/fd/4", "-test.run", "^TestReopenDescriptor$")
	command.Env = append(os.Environ(), reopenVariable+"=1")
	command.ExtraFiles = []*os.File{file, self}
	command.Dir = "/"
	if user != 0 {
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	}
	output, err := command.CombinedOutput()
	if err != nil && user != 0 && (strings.Contains(err.Error(), "permission denied") || strings.Contains(err.Error(), "not permitted")) {
		t.Skipf("this user cannot start a process of another: %v", err)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return string(output)
}

// TestRegionsAreWrittenByTheirOwner checks that a process of another user that has a read-only
// descriptor cannot reopen it for writing through /proc.
func TestRegionsAreWrittenByTheirOwner(t *testing.T) {
	for _, access := range []shm.Access{shm.ReadOnly, shm.ReadWrite, shm.WriteAlone} {
		r, err := shm.NewRegion(shm.Memfd{}, 1<<20, access)
		if err != nil {
			t.Fatal(err)
		}
		said := reopened(t, r, 65534)
		for _, want := range []string{"open: permission denied", "mode: operation not permitted", "own: bad file descriptor", "read: done"} {
			if !strings.Contains(said, "\n"+want) {
				t.Errorf("access %d: another user got %q, want %q in it", access, said, want)
			}
		}
		r.Release()
	}
}

// TestAWriteAloneRegionHasOneWriter checks that neither the owner nor root gets a second write
// access. Existing mappings stay writable.
func TestAWriteAloneRegionHasOneWriter(t *testing.T) {
	r, err := shm.NewRegion(shm.Memfd{}, 1<<20, shm.WriteAlone)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	if seals, err := unix.FcntlInt(r.File().Fd(), unix.F_GET_SEALS, 0); err != nil || seals&unix.F_SEAL_FUTURE_WRITE == 0 {
		t.Skipf("the kernel knows no F_SEAL_FUTURE_WRITE (%#x, %v)", seals, err)
	}
	if _, err := unix.Write(int(r.File().Fd()), []byte("x")); err != unix.EPERM {
		t.Errorf("write: got %v, want EPERM", err)
	}
	if _, err := unix.Mmap(int(r.File().Fd()), 0, int(shm.PageSize), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != unix.EPERM {
		t.Errorf("second mapping: got %v, want EPERM", err)
	}
	if err := unix.Fchmod(int(r.File().Fd()), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", r.File().Fd()), unix.O_RDWR, 0)
	if err == nil {
		defer unix.Close(again)
		if _, err := unix.Write(again, []byte("x")); err != unix.EPERM {
			t.Errorf("write to a descriptor that was opened again: got %v, want EPERM", err)
		}
	}
	if err := r.Reserve(0, shm.PageSize); err != nil {
		t.Errorf("Reserve: %v", err)
	}
	b, err := r.Bytes(0, 8)
	if err != nil {
		t.Fatal(err)
	}
	copy(b, "written")
	if err := r.Discard(0, shm.PageSize); err == nil {
		t.Error("Discard of a region that is written alone: got no error, which its doc says")
	}
}
