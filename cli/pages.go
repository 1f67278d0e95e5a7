package cli

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// releaseStartup unmaps the pages of the executable. Half of them are needed only during startup.
// The kernel maps the others again, from the page cache, when they are needed. Mappings with a page
// that differs from the file stay: it has a breakpoint, or was relocated when the program started.
func releaseStartup() error {
	executable, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	maps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return err
	}
	defer maps.Close()
	var first, end uintptr // of the mapping; end is 0 if it is not the executable's
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		// 00400000-02a3c000 r-xp 00000000 00:27 1234   /path, then a line for each figure
		// (proc_pid_smaps(5)).
		line := lines.Text()
		var from, to uintptr
		if _, err := fmt.Sscanf(line, "%x-%x ", &from, &to); err == nil {
			first, end = from, 0
			if strings.HasSuffix(line, " "+executable) {
				end = to
			}
			continue
		}
		if amount, ok := strings.CutPrefix(line, "Anonymous:"); !ok || end == 0 || strings.TrimSpace(amount) != "0 kB" {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, first, end-first, unix.MADV_DONTNEED); errno != 0 {
			return errno
		}
	}
	return nil
}
