package top

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/rivo/uniseg"
	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/cli/client"
	"github.com/nereid-serving/nereid/cli/command"
	"github.com/nereid-serving/nereid/panics"
)

// watch shows the server until the user quits.
func watch(ctx context.Context, o *options, p *poller) error {
	screen, err := tcell.NewScreen()
	if err == nil {
		err = screen.Init()
	}
	if err != nil {
		return command.Usagef("the terminal %q cannot be used: %v; --once shows plain text", os.Getenv("TERM"), err)
	}
	var panics bytes.Buffer // of goroutines, which have ended when run returns
	defer func() { _, _ = os.Stderr.Write(panics.Bytes()) }()
	defer screen.Fini() // after a panic as well
	s := &session{
		options: o, server: p.server, screen: screen, ui: &ui{sort: columnOf(o.sort), filter: o.filter},
		outcomes: make(chan outcome, 1), failed: make(chan error, 1), log: zerolog.New(zerolog.SyncWriter(&panics)),
	}
	p.panics = s.log
	return s.run(ctx, p)
}

// session is an interactive session. Only the goroutine of run uses it.
type session struct {
	options  *options
	server   *client.Endpoint
	screen   tcell.Screen
	ui       *ui
	view     *View
	acting   bool         // an act is in progress
	outcomes chan outcome // of the act; capacity 1, because there is only one at a time
	failed   chan error   // of the first goroutine that panicked; capacity 1, because run reads once
	log      zerolog.Logger
}

func (s *session) run(ctx context.Context, p *poller) error {
	ctx, cancel := context.WithCancel(ctx)
	views := make(chan *View)  // the poller sends, until ctx ends
	var running sync.WaitGroup // all goroutines of the session
	running.Add(2)
	panics.Go(s.log, panics.Request, func() {
		defer running.Done()
		for {
			began := time.Now()
			select {
			case views <- p.poll(ctx):
			case <-ctx.Done():
				return
			}
			select {
			case <-time.After(s.options.interval - time.Since(began)):
			case <-ctx.Done():
				return
			}
		}
	}, s.fail)
	events := make(chan tcell.Event, 16) // ChannelEvents sends and closes
	quit := make(chan struct{})
	panics.Go(s.log, panics.Request, func() {
		defer running.Done()
		s.screen.ChannelEvents(events, quit)
	}, s.fail)
	defer func() {
		cancel()
		close(quit)
		running.Wait()
		if s.acting {
			<-s.outcomes
		}
	}()
	for {
		s.draw()
		select {
		case <-ctx.Done():
			return nil
		case err := <-s.failed:
			return err
		case v := <-views:
			if !s.ui.paused || s.view == nil {
				s.view = v
			}
		case event, open := <-events:
			if !open {
				return errors.New("the terminal is gone")
			}
			if !s.handle(ctx, event) {
				return nil
			}
		case done := <-s.outcomes:
			s.acting = false
			if done.err != nil {
				s.ui.tell(true, "%v", done.err)
			} else {
				s.ui.tell(false, "%s", done.text)
			}
		}
	}
}

// begin executes an act in the background.
func (s *session) begin(ctx context.Context, a *act) {
	if s.acting {
		s.ui.tell(true, "wait until the previous change is done")
		return
	}
	s.acting = true
	s.ui.tell(false, "%s of %s in progress", a.what, a.model)
	panics.Go(s.log, panics.Request, func() {
		s.outcomes <- perform(ctx, s.server, *a)
	}, func(err error) {
		s.fail(err)
		s.outcomes <- outcome{err: err}
	})
}

// fail ends the session after a panic in one of its goroutines. The logged stack is printed once
// the terminal is restored.
func (s *session) fail(err error) {
	select {
	case s.failed <- err:
	default:
	}
}

// handle handles an event. It returns false if the user quits.
func (s *session) handle(ctx context.Context, event tcell.Event) bool {
	switch e := event.(type) {
	case *tcell.EventResize:
		s.screen.Sync()
	case *tcell.EventError:
		return false
	case *tcell.EventKey:
		if e.Key() == tcell.KeyCtrlC {
			return false
		}
		if e.Key() == tcell.KeyCtrlL {
			s.screen.Sync()
			return true
		}
		_, height := s.screen.Size()
		more, a := s.ui.press(keyOf(e), s.view, height)
		if a != nil {
			s.begin(ctx, a)
		}
		return more
	}
	return true
}

// keyOf returns a key's name: its character, or a word for other keys.
func keyOf(e *tcell.EventKey) string {
	switch e.Key() {
	case tcell.KeyRune:
		return string(e.Rune())
	case tcell.KeyUp, tcell.KeyCtrlP:
		return "up"
	case tcell.KeyDown, tcell.KeyCtrlN:
		return "down"
	case tcell.KeyPgUp:
		return "page up"
	case tcell.KeyPgDn:
		return "page down"
	case tcell.KeyHome:
		return "home"
	case tcell.KeyEnd:
		return "end"
	case tcell.KeyTab, tcell.KeyBacktab:
		return "tab"
	case tcell.KeyEnter, tcell.KeyCtrlJ:
		return "enter"
	case tcell.KeyEsc:
		return "escape"
	case tcell.KeyBackspace, tcell.KeyBackspace2:
		return "backspace"
	case tcell.KeyCtrlU:
		return "erase line"
	case tcell.KeyCtrlW:
		return "erase word"
	}
	return ""
}

// styles are the terminal styles. With NO_COLOR there are only bold and reverse.
var styles = [...]tcell.Style{
	plainText: tcell.StyleDefault,
	strong:    tcell.StyleDefault.Bold(true),
	faint:     tcell.StyleDefault.Dim(true),
	good:      tcell.StyleDefault.Foreground(tcell.ColorGreen),
	busy:      tcell.StyleDefault.Foreground(tcell.ColorOlive),
	bad:       tcell.StyleDefault.Foreground(tcell.ColorMaroon).Bold(true),
	heading:   tcell.StyleDefault.Bold(true),
	selected:  tcell.StyleDefault.Reverse(true),
}

// draw draws the view. It sets each cell once, because the library sends only changed cells:
// clearing the screen first would make it send everything.
func (s *session) draw() {
	width, height := s.screen.Size()
	lines := s.ui.frame(s.view, s.options.server.URL.String(), width, height)
	for y := range height {
		var l line
		if y < len(lines) {
			l = lines[y]
		}
		x := 0
		whole := len(l) > 0 && l[0].style == selected
		for _, piece := range l {
			style := styles[piece.style]
			if whole {
				style = styles[selected]
			}
			for rest, state := clean(piece.text), -1; rest != "" && x < width; {
				var cluster string
				var wide int
				cluster, rest, wide, state = uniseg.FirstGraphemeClusterInString(rest, state)
				if x+wide > width {
					break
				}
				s.screen.Put(x, y, cluster, style)
				x += wide
			}
		}
		for ; x < width; x++ {
			s.screen.Put(x, y, " ", tcell.StyleDefault)
		}
	}
	s.screen.Show()
}

// frame returns everything that the terminal shows, in at most height lines.
func (u *ui) frame(v *View, address string, width, height int) []line {
	switch {
	case width < 20 || height < 4:
		return []line{textLine(fit("too small", width, false), plainText)}
	case u.help:
		return clip(helpLines(), height)
	case v == nil:
		return []line{textLine("asking "+address+" …", faint)}
	}
	lines := head(v, u)
	if most := max(1, height/3); len(lines) > most {
		lines = lines[:most]
	}
	foot := u.foot(width)
	rows := u.rows(v)
	at := u.find(rows)
	table := modelTable(rows, u, width)
	room := height - len(lines) - 1 // for tables
	tableRoom, lowerRoom := u.split(room, len(table))
	if tableRoom > 0 {
		u.top = clampTop(u.top, at, len(rows), tableRoom-1)
		lines = append(lines, table[0])
		for i := u.top; i < len(rows) && i-u.top < tableRoom-1; i++ {
			l := table[i+1]
			if i == at && !u.below {
				l = line{{fit(l.String(), width, false), selected}}
			} else if i == at {
				l = append(line{{l[0].text, strong}}, l[1:]...)
			}
			lines = append(lines, l)
		}
		for len(lines) < height-1-lowerRoom {
			lines = append(lines, nil)
		}
	}
	if lowerRoom > 1 {
		var r *Row
		if at >= 0 {
			r = rows[at]
		}
		lines = append(lines, u.lowerLines(v, r, width, lowerRoom)...)
	}
	for len(lines) < height-1 {
		lines = append(lines, nil)
	}
	return append(lines[:height-1], foot)
}

// split divides the lines between the table and the lower pane. A small terminal shows only the
// focused one.
func (u *ui) split(room, table int) (tableRoom, lowerRoom int) {
	const least = 4
	if room < 2*least {
		if u.below {
			return 0, room
		}
		return room, 0
	}
	tableRoom = min(table, room-max(least, room/2))
	if u.below {
		tableRoom = min(table, room/3)
	}
	return max(tableRoom, 2), room - max(tableRoom, 2)
}

// clampTop scrolls so that the chosen row is visible.
func clampTop(top, at, rows, room int) int {
	top = min(top, max(0, rows-room))
	if at < 0 {
		return max(top, 0)
	}
	return max(min(top, at), at-room+1, 0)
}

// lowerLines returns the title of the lower pane and the visible part of its lines.
func (u *ui) lowerLines(v *View, r *Row, width, room int) []line {
	title, fixed, all := lower(v, u, r)
	room -= 1 + len(fixed)
	u.scroll = max(0, min(u.scroll, len(all)-room))
	first := u.scroll
	if u.fromEnd() {
		first = max(0, len(all)-room-u.scroll)
	}
	shown := all[min(first, len(all)):min(first+max(room, 0), len(all))]
	if len(all) > len(shown) {
		title += fmt.Sprintf(" (%d to %d of %d)", first+1, first+len(shown), len(all))
	}
	mark := heading
	if u.below {
		mark = selected
	}
	text := "── " + title + " "
	bar := text + strings.Repeat("─", max(0, width-uniseg.StringWidth(text)))
	lines := append([]line{textLine(fit(bar, width, false), mark)}, fixed...)
	return append(lines, shown...)
}

// fromEnd reports whether the lower pane follows its end.
func (u *ui) fromEnd() bool { return u.pane == paneErrors || u.pane == paneLog }

// foot returns the last line: a question, a message, or the keys.
func (u *ui) foot(width int) line {
	switch {
	case u.ask != nil:
		return textLine(fit(u.ask.prompt+clean(u.ask.typed)+"█", width, false), strong)
	case u.message != "" && u.wrong:
		return textLine(u.message, bad)
	case u.message != "":
		return textLine(u.message, good)
	}
	return textLine("q quit  ? keys  s sort  / filter  w window  i e l d panes  r load  u unload  n instances  tab focus", faint)
}

func clip(lines []line, height int) []line { return lines[:min(len(lines), height)] }

func helpLines() (lines []line) {
	for _, key := range []struct{ name, does string }{
		{"↑ ↓ PgUp PgDn Home End j k", "move in the focused pane"},
		{"Tab", "focus the other pane"},
		{"s S", "sort by the next column; reverse the order"},
		{"/", "show only models whose name contains a text"},
		{"w", "percentiles of the last 1, 5 or 15 minutes"},
		{"i e l d", "instances, errors, log or details below"},
		{"r", "load the selected model from its current files"},
		{"u", "unload it"},
		{"n", "change the number of its instances"},
		{"space", "pause"},
		{"Ctrl-L", "redraw"},
		{"q", "end"},
		{"", ""},
		{"", "any key goes back"},
	} {
		lines = append(lines, line{{fmt.Sprintf("%-28s", key.name), strong}, {key.does, plainText}})
	}
	return lines
}
