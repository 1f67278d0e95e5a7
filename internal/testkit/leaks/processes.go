package leaks

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// listProcesses lists the children of this process, including zombies, and all processes that
// inherited its mark.
func listProcesses(mark string) ([]item, error) {
	pids, err := processIDs()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var items []item
	space := make([]byte, environmentBytes)
	for _, pid := range pids {
		state, parent, ok := readStat(pid)
		if !ok || pid == os.Getpid() || (parent != os.Getpid() && !isMarked(pid, mark, space)) {
			continue
		}
		command, _ := os.ReadFile(procPath(pid, "cmdline"))
		text := fmt.Sprintf("%d (parent %d, state %s) %s", pid, parent, state, bytes.ReplaceAll(command, []byte{0}, []byte{' '}))
		items = append(items, item{kind: "process", key: strconv.Itoa(pid), text: text})
	}
	return items, nil
}

func processIDs() ([]int, error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// readStat returns a process's state letter and its parent. ok is false if the process is gone.
func readStat(pid int) (state string, parent int, ok bool) {
	stat, err := os.ReadFile(procPath(pid, "stat"))
	if err != nil {
		return "", 0, false
	}
	// The second field is the name in parentheses, which may contain any character.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return "", 0, false
	}
	parent, err = strconv.Atoi(fields[1])
	return fields[0], parent, err == nil
}

// environmentBytes is the maximum number of bytes read from an environment, enough for most
// processes.
const environmentBytes = 256 << 10

// isMarked reports whether the process was started with our mark in its environment, by us or by a
// descendant. space is the buffer for the environment.
func isMarked(pid int, mark string, space []byte) bool {
	// A process in the middle of exec shows no environment for an arbitrary time, and would look
	// unrelated. So it is read again. Some processes have none; the kernel may also be about to
	// find the end of the environment, which is immediate.
	deadline := time.Now().Add(patience)
	for empty := 0; empty < 20 && time.Now().Before(deadline); {
		n, err := readOnce(procPath(pid, "environ"), space)
		if err != nil || n > 0 {
			return err == nil && bytes.Contains(space[:n], []byte(markVariable+"="+mark+"\x00"))
		}
		if _, err := os.Readlink(procPath(pid, "exe")); err != nil {
			return false // dead, or a kernel thread
		}
		if !execs(pid) {
			empty++
		}
		time.Sleep(time.Millisecond)
	}
	return false
}

// execs reports whether a process is in the middle of exec, so that the kernel does not yet know
// the end of its environment.
func execs(pid int) bool {
	stat, err := os.ReadFile(procPath(pid, "stat"))
	if err != nil {
		return false
	}
	const end = 51 - 3 // proc(5) counts from 1, and the name is the second
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	return len(fields) > end && fields[end] == "0"
}

// readOnce reads a file with one call. In /proc, later calls may find nothing if the process has
// called exec meanwhile.
func readOnce(path string, space []byte) (int, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	n, err := f.Read(space)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

func procPath(pid int, name string) string {
	return "/proc/" + strconv.Itoa(pid) + "/" + name
}
