// The page works without this script. It fetches the page anew every two seconds and replaces the parts that live
// (data-live), and sends forms without leaving the page. It makes no markup of texts: all HTML comes from the server.
"use strict";
(() => {
	const interval = 2000;
	const self = document.body.dataset.self;
	const live = document.getElementById("live");

	const parse = async (reply) => new DOMParser().parseFromString(await reply.text(), "text/html");

	// busy reports whether a person has something selected or focused in a part.
	const busy = (part) => {
		const selection = getSelection();
		return part.contains(document.activeElement) || (selection && !selection.isCollapsed && part.contains(selection.anchorNode));
	};

	// take replaces a part by its newer form; details stay as open as they are.
	const take = (from, id) => {
		const old = document.getElementById(id), fresh = from.getElementById(id);
		if (!old || !fresh || old.isEqualNode(fresh)) return;
		for (const details of fresh.querySelectorAll("details[id]")) {
			const before = document.getElementById(details.id);
			if (before) details.open = before.open;
		}
		old.replaceWith(document.adoptNode(fresh));
	};

	const refresh = async () => {
		if (document.hidden) return;
		try {
			const reply = await fetch(self, { cache: "no-store" });
			if (!reply.ok) throw new Error(`${reply.status} ${reply.statusText}`);
			const page = await parse(reply);
			for (const part of document.querySelectorAll("[data-live]")) if (!busy(part)) take(page, part.id);
			live.textContent = "Live";
		} catch (error) {
			live.textContent = `Not live: ${error.message}`;
		}
	};

	if (self) {
		const again = () => setTimeout(async () => { await refresh(); again(); }, interval);
		again();
	}

	// Forms of requests show their answer in place; the others go to the page that the server names.
	document.addEventListener("submit", async (event) => {
		const form = event.target, button = form.querySelector("button");
		if (!form.classList.contains("request")) {
			setTimeout(() => { button.disabled = true; }); // after the browser has gathered the fields
			return;
		}
		event.preventDefault();
		button.disabled = true;
		try {
			const page = await parse(await fetch(form.action, { method: "POST", body: new FormData(form) }));
			const answer = page.getElementById("answer");
			if (answer) {
				take(page, "answer");
			} else {
				document.querySelector("main").replaceWith(document.adoptNode(page.querySelector("main") || page.body));
			}
			const shown = document.getElementById("answer");
			if (shown) {
				shown.focus();
				shown.scrollIntoView({ block: "nearest" });
			}
		} catch (error) {
			live.textContent = `The request has not been answered: ${error.message}`;
		} finally {
			button.disabled = false;
		}
	});
})();
