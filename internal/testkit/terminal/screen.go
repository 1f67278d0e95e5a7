package terminal

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nereid-serving/nereid/internal/testkit"
	"golang.org/x/sys/unix"
)

// Resize changes the size of the terminal, and notifies the program.
func (s *Session) Resize(rows, columns int) {
	s.t.Helper()
	raw, err := s.person.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			_ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(rows), Col: uint16(columns)})
		})
	}
	if err != nil {
		s.t.Fatalf("resize the terminal: %v", err)
	}
}

// AwaitScreen waits until is returns true for the terminal's current screen. It fails the test with
// the screen after limit.
func (s *Session) AwaitScreen(what string, limit time.Duration, is func(lines []string) bool) {
	s.t.Helper()
	if !testkit.Within(limit, func() bool { return is(s.Screen()) }) {
		s.t.Fatalf("the screen does not show %s within %s:\n%s", what, limit, strings.Join(s.Screen(), "\n"))
	}
}

// Screen returns the lines that the terminal shows for a full-screen program, without trailing
// spaces. It supports xterm's sequences for cursor movement and clearing; it ignores colours.
func (s *Session) Screen() []string { return draw(s.shown.String()) }

// screen is the content of a terminal.
type screen struct {
	rows     [][]rune
	row, col int
}

func draw(text string) []string {
	var s screen
	for text != "" {
		switch {
		case strings.HasPrefix(text, "\x1b["):
			end := strings.IndexFunc(text[2:], func(r rune) bool { return r >= '@' && r <= '~' })
			if end < 0 {
				return s.lines() // the rest is on its way
			}
			s.control(text[2:2+end], text[2+end])
			text = text[3+end:]
		case strings.HasPrefix(text, "\x1b]"):
			end := strings.IndexAny(text, "\a\\")
			if end < 0 {
				return s.lines()
			}
			text = text[end+1:]
		case strings.HasPrefix(text, "\x1b(") || strings.HasPrefix(text, "\x1b)"):
			text = text[min(3, len(text)):]
		case text[0] == 0x1b:
			text = text[min(2, len(text)):]
		default:
			r, n := utf8.DecodeRuneInString(text)
			text = text[n:]
			s.put(r)
		}
	}
	return s.lines()
}

// put writes a character, or moves the cursor.
func (s *screen) put(r rune) {
	switch r {
	case '\r':
		s.col = 0
	case '\n':
		s.row++
	case '\b':
		s.col = max(0, s.col-1)
	default:
		if r < ' ' {
			return
		}
		for len(s.rows) <= s.row {
			s.rows = append(s.rows, nil)
		}
		for len(s.rows[s.row]) <= s.col {
			s.rows[s.row] = append(s.rows[s.row], ' ')
		}
		s.rows[s.row][s.col] = r
		s.col++
	}
}

// control executes a control sequence.
func (s *screen) control(parameters string, final byte) {
	if parameters == "?1049" && final == 'h' {
		s.rows = nil
		return
	}
	var numbers []int
	for part := range strings.SplitSeq(parameters, ";") {
		n, err := strconv.Atoi(part)
		if err != nil {
			n = 0
		}
		numbers = append(numbers, n)
	}
	n := max(1, numbers[0])
	switch final {
	case 'H', 'f':
		s.row, s.col = n-1, 0
		if len(numbers) > 1 {
			s.col = max(1, numbers[1]) - 1
		}
	case 'A':
		s.row = max(0, s.row-n)
	case 'B':
		s.row += n
	case 'C':
		s.col += n
	case 'D':
		s.col = max(0, s.col-n)
	case 'G':
		s.col = n - 1
	case 'd':
		s.row = n - 1
	case 'J':
		if numbers[0] == 2 {
			s.rows = nil
		} else if s.row < len(s.rows) {
			s.rows = s.rows[:s.row+1]
			s.rows[s.row] = s.rows[s.row][:min(s.col, len(s.rows[s.row]))]
		}
	case 'K':
		if s.row < len(s.rows) {
			s.rows[s.row] = s.rows[s.row][:min(s.col, len(s.rows[s.row]))]
		}
	}
}

func (s *screen) lines() (list []string) {
	for _, row := range s.rows {
		list = append(list, strings.TrimRight(string(row), " "))
	}
	return list
}
