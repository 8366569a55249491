"""The app of the workers: one mail for each order. Every worker handles the orders of some customers."""

from __future__ import annotations

import logging

import eventproc

LOG = logging.getLogger("shop")

app = eventproc.App()


@app.processor("shop/orders", group="mailer")
async def mail(event: eventproc.Event) -> None:
    """Handle an order."""
    LOG.info("mail to %s", event.key)
