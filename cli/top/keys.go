package top

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// find returns the index of the chosen row, or -1 without rows. If the choice is gone, it chooses
// the first row.
func (u *ui) find(rows []*Row) int {
	at := slices.IndexFunc(rows, func(r *Row) bool { return r.key() == u.chosen })
	if at < 0 { // perhaps of another version
		at = slices.IndexFunc(rows, func(r *Row) bool { return r.Model == u.chosen.model })
	}
	if at < 0 && len(rows) > 0 {
		at = 0
	}
	if at >= 0 {
		u.chosen = rows[at].key()
	}
	return at
}

// press handles a key. more is false if the user quits; a is the action to execute.
func (u *ui) press(name string, v *View, height int) (more bool, a *act) {
	if u.help {
		u.help = false
		return true, nil
	}
	if u.ask != nil {
		return true, u.reply(name)
	}
	u.message = ""
	page := max(1, height/2-2)
	switch name {
	case "q":
		return false, nil
	case "?", "h":
		u.help = true
	case "up", "k":
		u.move(v, -1)
	case "down", "j":
		u.move(v, 1)
	case "page up":
		u.move(v, -page)
	case "page down":
		u.move(v, page)
	case "home", "g":
		u.move(v, -1<<30)
	case "end", "G":
		u.move(v, 1<<30)
	case "tab":
		u.below = !u.below
	case "s":
		u.sort = (u.sort + 1) % len(columns())
		u.tell(false, "sorted by %s", columns()[u.sort].name)
	case "S":
		u.reverse = !u.reverse
	case "w":
		u.period = (u.period + 1) % len(periodNames)
	case " ":
		u.paused = !u.paused
	case "i":
		u.show(paneInstances)
	case "e":
		u.show(paneErrors)
	case "l":
		u.show(paneLog)
	case "d":
		u.show(paneDetails)
	case "/":
		u.ask = &question{prompt: "models whose name contains: ", text: true, typed: u.filter, answer: func(u *ui, typed string) *act {
			u.filter = typed
			return nil
		}}
	case "escape":
		u.filter = ""
	case "r", "u", "n":
		u.askToChange(name, v)
	}
	return true, nil
}

func (u *ui) show(p pane) {
	u.pane, u.scroll = p, 0
}

// move moves the selection, or the lower pane if that has the focus.
func (u *ui) move(v *View, by int) {
	if u.below {
		if u.fromEnd() {
			by = -by
		}
		u.scroll = max(0, u.scroll+by) // frame limits it
		return
	}
	if v == nil {
		return
	}
	rows := u.rows(v)
	at := u.find(rows)
	if at < 0 {
		return
	}
	next := rows[max(0, min(at+by, len(rows)-1))].key()
	if next != u.chosen {
		u.chosen = next
		if !u.fromEnd() {
			u.scroll = 0
		}
	}
}

// askToChange asks before the selected model is changed.
func (u *ui) askToChange(name string, v *View) {
	if v == nil {
		return
	}
	rows := u.rows(v)
	at := u.find(rows)
	if at < 0 {
		u.tell(true, "no model is selected")
		return
	}
	if c := v.Server.Control; c != "" && c != "explicit" {
		u.tell(true, "the server does not allow this: start it with --model-control-mode=explicit (it has %s)", c)
		return
	}
	r := rows[at]
	switch name {
	case "r":
		u.ask = confirm("load "+r.Model+" from its current files?", act{what: "load", model: r.Model})
	case "u":
		if !isLoaded(v, r.Model) {
			u.tell(true, "%s is not loaded", r.Model)
			return
		}
		u.ask = confirm("unload "+r.Model+"?", act{what: "unload", model: r.Model})
	case "n":
		if r.State != "READY" {
			u.tell(true, "%s is not loaded: load it first", r.Model)
			return
		}
		u.ask = askCount(r)
	}
}

// isLoaded reports whether a version of a model serves, or is being loaded or unloaded.
func isLoaded(v *View, model string) bool {
	return slices.ContainsFunc(v.Models, func(r Row) bool { return r.Model == model && r.State != "" && r.State != unavailable })
}

// reply handles a key during a question.
func (u *ui) reply(name string) *act {
	q := u.ask
	switch {
	case name == "escape":
		u.ask = nil
	case !q.text:
		u.ask = nil
		if name == "y" || name == "Y" {
			return q.answer(u, "")
		}
		u.tell(false, "nothing was changed")
	case name == "enter":
		u.ask = nil
		return q.answer(u, q.typed)
	case name == "backspace":
		_, n := utf8.DecodeLastRuneInString(q.typed)
		q.typed = q.typed[:len(q.typed)-n]
	case name == "erase line":
		q.typed = ""
	case name == "erase word":
		q.typed = strings.TrimRight(q.typed, " ")
		q.typed = q.typed[:strings.LastIndexByte(q.typed, ' ')+1]
	case utf8.RuneCountInString(name) == 1:
		q.typed += name
	}
	return nil
}
