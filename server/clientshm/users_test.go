package clientshm_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const otherUserVariable = "NEREID_TEST_OTHER_USER"

// TestRegisterAsAnotherUser is the part of TestFilesOfOtherUsersAreRefused that runs in a process
// of another user.
func TestRegisterAsAnotherUser(t *testing.T) {
	dir := os.Getenv(otherUserVariable)
	if dir == "" {
		t.Skip("is run by TestFilesOfOtherUsersAreRefused")
	}
	r := enabled(t, dir)
	for _, file := range []string{"private", "readable", "shared"} {
		fmt.Printf("\n%s: %v\n", file, r.RegisterSystem(file, file, 0, page))
	}
}

// TestFilesOfOtherUsersAreRefused checks that the server does not read a file for a client if the
// server itself may not write to it.
func TestFilesOfOtherUsersAreRefused(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "nereid-regions-test-")
	if err != nil {
		t.Skip(err)
	}
	defer os.RemoveAll(dir)
	for file, mode := range map[string]os.FileMode{".": 0o755, "private": 0o600, "readable": 0o644, "shared": 0o666} {
		path := filepath.Join(dir, file)
		if file != "." {
			if err := os.WriteFile(path, make([]byte, page), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	command := exec.Command("/proc/self/fd/3", "-test.run", "^TestRegisterAsAnotherUser$")
	command.Env = append(os.Environ(), otherUserVariable+"="+dir)
	command.ExtraFiles, command.Dir = []*os.File{self}, "/"
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	output, err := command.CombinedOutput()
	if err != nil && (strings.Contains(err.Error(), "permission denied") || strings.Contains(err.Error(), "not permitted")) {
		t.Skipf("this user cannot start a process of another: %v", err)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	for _, want := range []string{"private: Unable to open shared memory region: 'private'", "readable: Unable to open shared memory region: 'readable'", "shared: <nil>"} {
		if !strings.Contains(string(output), "\n"+want+"\n") {
			t.Errorf("got %s\nwant %q in it", output, want)
		}
	}
}
