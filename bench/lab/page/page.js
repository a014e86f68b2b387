"use strict";
(function () {
    const root = document.documentElement;

    // The theme: the system's, or one that was chosen.
    const themes = ["system", "light", "dark"];
    const button = document.getElementById("theme");
    let theme = 0;
    button.addEventListener("click", function () {
        theme = (theme + 1) % themes.length;
        if (theme === 0)
            delete root.dataset.theme;
        else
            root.dataset.theme = themes[theme];
        button.querySelector("span").textContent = themes[theme];
    });

    // An allocator of the legend, clicked: the others step back in all charts, until it is clicked again.
    const legend = document.querySelectorAll(".legend button");
    for (const each of legend)
        each.addEventListener("click", function () {
            const chosen = each.getAttribute("aria-pressed") !== "true";
            for (const other of legend)
                other.setAttribute("aria-pressed", String(chosen && other === each));
            if (chosen)
                root.dataset.series = each.dataset.series;
            else
                delete root.dataset.series;
        });

    // A link to a row opens its table.
    function openTarget() {
        const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
        if (target && target.tagName === "DETAILS") {
            target.open = true;
            target.scrollIntoView();
        }
    }
    window.addEventListener("hashchange", openTarget);
    openTarget();

    for (const each of document.querySelectorAll(".open-all"))
        each.addEventListener("click", function () {
            const rows = each.closest(".study").querySelectorAll("details.row");
            const open = !Array.from(rows).every((row) => row.open);
            for (const row of rows)
                row.open = open;
            each.textContent = open ? "Close all" : "Open all";
        });
})();
